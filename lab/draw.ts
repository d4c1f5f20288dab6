import { leasesOf } from '../sim/checkers/leases.ts'
import type { Run } from './play.ts'
import type { Scale } from './scale.ts'

const AXIS = 26

/** Draws the lanes of a run, up to a moment. */
export class Picture {
  readonly #canvas: HTMLCanvasElement
  readonly #run: Run
  readonly #scale: Scale
  readonly #lanes: readonly string[]
  readonly #leases: ReturnType<typeof leasesOf>

  constructor(canvas: HTMLCanvasElement, run: Run, scale: Scale) {
    this.#canvas = canvas
    this.#run = run
    this.#scale = scale
    const hasStore = run.history.of('write', 'read').length > 0
    this.#lanes = [...run.processes, ...run.nodes, ...(hasStore ? ['store'] : [])]
    this.#leases = leasesOf(run.history)
  }

  draw(nowMs: number): void {
    const canvas = this.#canvas
    const box = canvas.parentElement!
    const width = box.clientWidth
    const narrow = width < 600
    const lane = narrow ? 40 : 48
    const left = narrow ? 44 : 64
    const height = this.#lanes.length * lane + AXIS
    const ratio = devicePixelRatio
    canvas.style.height = `${height}px`
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio)
      canvas.height = Math.round(height * ratio)
    }
    const pen = canvas.getContext('2d')!
    pen.setTransform(ratio, 0, 0, ratio, 0, 0)
    pen.clearRect(0, 0, width, height)
    const style = getComputedStyle(box)
    const colour = (name: string): string => style.getPropertyValue(`--${name}`)
    const room = width - left - 16
    const unit = Math.max(narrow ? 13 : 17, room / this.#scale.length)
    const now = this.#scale.placeOf(nowMs)
    const shift = Math.max(0, Math.min(now - (room * 0.7) / unit, this.#scale.length - room / unit))
    const x = (ms: number): number => left + (this.#scale.placeOf(ms) - shift) * unit
    const y = (name: string): number => this.#lanes.indexOf(name.split('.')[0]!) * lane + lane / 2
    const end = x(nowMs)

    pen.font = `${narrow ? 12 : 13}px ${style.fontFamily}`
    pen.textBaseline = 'middle'
    for (const [index, name] of this.#lanes.entries()) {
      if (index % 2 === 0) {
        pen.fillStyle = colour('stripe')
        pen.fillRect(0, index * lane, width, lane)
      }
      pen.strokeStyle = colour('line')
      line(pen, left, y(name), width, y(name))
    }
    pen.save()
    pen.beginPath()
    pen.rect(left, 0, width - left, height)
    pen.clip()
    pen.fillStyle = colour('soft')
    pen.textAlign = 'center'
    for (const mark of this.#scale.marks((narrow ? 70 : 90) / unit)) {
      pen.fillText(clockTime(mark), x(mark), height - AXIS / 2)
      pen.strokeStyle = colour('line')
      line(pen, x(mark), 0, x(mark), height - AXIS)
    }
    pen.save()
    pen.beginPath()
    pen.rect(left, 0, Math.max(0, end - left), height - AXIS)
    pen.clip()
    for (const { process, at, untilMs } of this.#run.history.of('pause')) {
      hatch(pen, x(at), y(process) - lane / 2 + 3, x(untilMs) - x(at), lane - 6, colour('fault'))
    }
    for (const { process, token, fromMs, endMs } of this.#leases) {
      const to = Math.min(endMs, this.#scale.endMs)
      pen.fillStyle = colour(`lease-${Number(process.slice(1, 2)) % 4}`)
      pill(pen, x(fromMs), y(process) - 8, x(to) - x(fromMs), 16)
      pen.fillStyle = colour('on-lease')
      pen.textAlign = 'left'
      const label = token === 0 ? 'lock' : `token ${this.#rank(token)}`
      if (x(to) - Math.max(x(fromMs), left) > 64) pen.fillText(label, Math.max(x(fromMs), left) + 8, y(process) + 1)
    }
    this.#messages(pen, x, y, colour)
    pen.restore()
    this.#marks(pen, x, y, colour, nowMs)
    pen.strokeStyle = colour('accent')
    pen.lineWidth = 2
    line(pen, end, 0, end, height - AXIS)
    pen.restore()
    pen.textAlign = 'left'
    pen.lineWidth = 1
    for (const name of this.#lanes) {
      pen.fillStyle = colour('text')
      pen.fillText(name, narrow ? 8 : 14, y(name) + 1)
    }
  }

  /** Tokens by rank: what matters is which one is greater. */
  #rank(token: number): number {
    return [...new Set(this.#leases.map((lease) => lease.token))].sort((a, b) => a - b).indexOf(token) + 1
  }

  #messages(pen: CanvasRenderingContext2D, x: X, y: Y, colour: (name: string) => string): void {
    const { history } = this.#run
    const sent = new Map(history.of('send').map((event) => [event.id, event]))
    const done = new Map(history.of('exec').map((event) => [event.id, event]))
    pen.lineWidth = 1.2
    for (const event of history.of('exec')) {
      const from = sent.get(event.id)
      if (from === undefined) continue
      pen.strokeStyle = colour(event.what === 'extend' ? 'line' : 'message')
      line(pen, x(from.at), y(from.process), x(event.at), y(event.node))
    }
    pen.setLineDash([3, 3])
    for (const event of history.of('heard')) {
      const from = done.get(event.id)
      if (from === undefined) continue
      pen.strokeStyle = colour(event.what === 'extend' ? 'line' : 'message')
      line(pen, x(from.at), y(event.node), x(event.at), y(event.process))
    }
    pen.setLineDash([])
  }

  #marks(pen: CanvasRenderingContext2D, x: X, y: Y, colour: (name: string) => string, nowMs: number): void {
    const { history } = this.#run
    for (const { at, accepted, value, base } of history.of('write')) {
      if (at > nowMs) continue
      dot(pen, x(at), y('store'), 8, colour(accepted ? (value === base + 1 ? 'good' : 'bad') : 'refused'))
      pen.fillStyle = colour('on-lease')
      pen.textAlign = 'center'
      pen.fillText(accepted ? (value === base + 1 ? '✓' : '!') : '×', x(at), y('store') + 1)
    }
    for (const { at, on } of history.of('fault')) {
      if (at <= nowMs) for (const place of on.split('-')) diamond(pen, x(at), y(place), colour('fault'))
    }
    for (const { at, process } of history.of('note'))
      if (at <= nowMs) dot(pen, x(at), y(process) + 14, 3, colour('fault'))
  }
}

type X = (ms: number) => number
type Y = (place: string) => number

export function clockTime(ms: number): string {
  return ms < 10_000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`
}

function line(pen: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  pen.beginPath()
  pen.moveTo(x1, y1)
  pen.lineTo(x2, y2)
  pen.stroke()
}

function pill(pen: CanvasRenderingContext2D, x: number, y: number, width: number, height: number): void {
  pen.beginPath()
  pen.roundRect(x, y, Math.max(width, 3), height, height / 2)
  pen.fill()
}

function dot(pen: CanvasRenderingContext2D, x: number, y: number, size: number, fill: string): void {
  pen.fillStyle = fill
  pen.beginPath()
  pen.arc(x, y, size, 0, 2 * Math.PI)
  pen.fill()
}

function diamond(pen: CanvasRenderingContext2D, x: number, y: number, fill: string): void {
  pen.fillStyle = fill
  pen.beginPath()
  pen.moveTo(x, y - 8)
  pen.lineTo(x + 7, y)
  pen.lineTo(x, y + 8)
  pen.lineTo(x - 7, y)
  pen.fill()
}

function hatch(
  pen: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  stroke: string,
): void {
  pen.save()
  pen.beginPath()
  pen.rect(x, y, width, height)
  pen.clip()
  pen.globalAlpha = 0.45
  pen.strokeStyle = stroke
  for (let at = x - height; at < x + width; at += 7) line(pen, at, y + height, at + height, y)
  pen.restore()
}
