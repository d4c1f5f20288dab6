import { Lanes, type Bar } from './lanes.ts'
import type { Run } from './play.ts'
import type { Scale } from './scale.ts'
import { clockTime } from './tell.ts'

const AXIS = 28
const COLOURS = ['card', 'stripe', 'line', 'soft', 'accent', 'fault', 'good', 'bad', 'refused', 'on-lease'] as const
type Colour = (typeof COLOURS)[number] | `client-${number}`
const CLIENTS = 4

/** Draws the lanes of a run, up to a moment. */
export class Picture {
  readonly lanes: Lanes
  readonly #canvas: HTMLCanvasElement
  readonly #pen: CanvasRenderingContext2D
  readonly #scale: Scale
  #colours = new Map<string, string>()
  #font = ''
  #width = 0
  #height = 0
  #lane = 0
  #unit = 1
  #shift = 0

  constructor(canvas: HTMLCanvasElement, run: Run, scale: Scale) {
    this.#canvas = canvas
    this.#pen = canvas.getContext('2d', { alpha: false })!
    this.#scale = scale
    this.lanes = new Lanes(run, scale)
    this.fit()
  }

  /** After the window or its colours have changed. Returns how high a lane is. */
  fit(): number {
    const canvas = this.#canvas
    const box = canvas.parentElement!
    const style = getComputedStyle(box)
    const names: Colour[] = [...COLOURS, ...Array.from({ length: CLIENTS }, (_, index) => `client-${index}` as const)]
    this.#colours = new Map(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]))
    this.#width = box.clientWidth
    const isNarrow = this.#width < 520
    this.#font = `500 ${isNarrow ? 11 : 12}px ${style.fontFamily}`
    const { length } = this.lanes.names
    this.#lane = isNarrow ? 38 : length > 8 ? 40 : 46
    this.#height = length * this.#lane + AXIS
    const ratio = devicePixelRatio
    canvas.style.height = `${this.#height}px`
    canvas.width = Math.round(this.#width * ratio)
    canvas.height = Math.round(this.#height * ratio)
    this.#pen.setTransform(ratio, 0, 0, ratio, 0, 0)
    this.#unit = Math.max(isNarrow ? 13 : 16, (this.#width - 20) / this.#scale.length)
    return this.#lane
  }

  /** Which moment is at that place of the canvas. */
  momentAt(x: number): number {
    return this.#scale.msAt(x / this.#unit + this.#shift)
  }

  draw(nowMs: number): void {
    const pen = this.#pen
    const now = this.#scale.placeOf(nowMs)
    const seen = this.#width / this.#unit
    this.#shift = Math.max(0, Math.min(now - seen * 0.68, this.#scale.length - seen))
    pen.fillStyle = this.#colour('card')
    pen.fillRect(0, 0, this.#width, this.#height)
    pen.font = this.#font
    pen.textBaseline = 'middle'
    this.#ground()
    for (const bar of this.lanes.outages) this.#hatch(bar, now, 0.3)
    for (const bar of this.lanes.pauses) this.#hatch(bar, now, 0.55)
    this.#wires(now)
    this.#leases(now)
    this.#badLines(now)
    this.#marks(now)
    pen.strokeStyle = this.#colour('accent')
    pen.lineWidth = 2
    this.#line(this.#x(now), 0, this.#x(now), this.#height - AXIS)
  }

  #colour(name: Colour): string {
    return this.#colours.get(name) ?? ''
  }

  #client(index: number): Colour {
    return `client-${index % CLIENTS}`
  }

  #x(place: number): number {
    return (place - this.#shift) * this.#unit
  }

  #y(lane: number): number {
    return (lane + 0.5) * this.#lane
  }

  #isSeen(from: number, to: number): boolean {
    return to >= this.#shift && from <= this.#shift + this.#width / this.#unit
  }

  #ground(): void {
    const pen = this.#pen
    const bottom = this.#height - AXIS
    pen.lineWidth = 1
    for (const lane of this.lanes.names.keys()) {
      pen.fillStyle = this.#colour('stripe')
      if (lane % 2 === 0) pen.fillRect(0, lane * this.#lane, this.#width, this.#lane)
    }
    pen.strokeStyle = this.#colour('line')
    pen.fillStyle = this.#colour('soft')
    pen.textAlign = 'center'
    pen.beginPath()
    for (const mark of this.#scale.marks(96 / this.#unit)) {
      const x = Math.round(this.#x(this.#scale.placeOf(mark))) + 0.5
      if (x < -50 || x > this.#width + 50) continue
      pen.moveTo(x, 0)
      pen.lineTo(x, bottom)
      const text = clockTime(mark)
      const half = pen.measureText(text).width / 2
      if (x - half > 2 && x + half < this.#width - 2) pen.fillText(text, x, bottom + AXIS / 2 + 1)
    }
    pen.stroke()
  }

  #hatch({ from, to, lane }: Bar, now: number, strength: number): void {
    const end = Math.min(to, now)
    if (from > now || !this.#isSeen(from, end)) return
    const pen = this.#pen
    const [left, right] = [Math.max(this.#x(from), -20), Math.min(this.#x(end), this.#width + 20)]
    const [top, height] = [lane * this.#lane + 2, this.#lane - 4]
    pen.save()
    pen.beginPath()
    pen.rect(left, top, right - left, height)
    pen.clip()
    pen.globalAlpha = strength
    pen.strokeStyle = this.#colour('fault')
    pen.lineWidth = 1.5
    pen.beginPath()
    // Fixed to the time, not to the window.
    const first = left - height - ((left + this.#shift * this.#unit) % 8)
    for (let at = first; at < right; at += 8) {
      pen.moveTo(at, top + height)
      pen.lineTo(at + height, top)
    }
    pen.stroke()
    pen.restore()
  }

  /** All of one colour in one path: there may be a thousand of them in a frame. */
  #wires(now: number): void {
    const pen = this.#pen
    const asked = Array.from({ length: CLIENTS }, () => new Path2D())
    const answered = Array.from({ length: CLIENTS }, () => new Path2D())
    const heads: (readonly [x: number, y: number, client: number])[] = []
    for (const { from, to, fromLane, toLane, client, isReply } of this.lanes.wires(this.#shift, now)) {
      if (from > now || to < this.#shift) continue
      const part = to <= now ? 1 : (now - from) / (to - from)
      const x = this.#x(from + (to - from) * part)
      const y = this.#y(fromLane) + (this.#y(toLane) - this.#y(fromLane)) * part
      const path = (isReply ? answered : asked)[client % CLIENTS]!
      path.moveTo(this.#x(from), this.#y(fromLane))
      path.lineTo(x, y)
      if (part < 1) heads.push([x, y, client])
    }
    for (const [paths, alpha] of [
      [asked, 0.75],
      [answered, 0.32],
    ] as const) {
      pen.globalAlpha = alpha
      pen.lineWidth = 1.25
      for (const [client, path] of paths.entries()) {
        pen.strokeStyle = this.#colour(this.#client(client))
        pen.stroke(path)
      }
    }
    pen.globalAlpha = 1
    for (const [x, y, client] of heads) this.#dot(x, y, 3.5, this.#client(client))
  }

  #leases(now: number): void {
    const pen = this.#pen
    const height = 20
    for (const { from, to, lane, client, label, until } of this.lanes.leases) {
      if (from > now) continue
      const y = this.#y(lane)
      const end = Math.min(to, now)
      pen.fillStyle = this.#colour(this.#client(client))
      if (to > now) {
        // What its own clock still gives it.
        const valid = until.findLast((one) => one.from <= now)?.to ?? now
        pen.globalAlpha = 0.22
        this.#pill(this.#x(from), y - height / 2, this.#x(valid) - this.#x(from), height)
        pen.globalAlpha = 1
      }
      if (!this.#isSeen(from, end)) continue
      this.#pill(this.#x(from), y - height / 2, this.#x(end) - this.#x(from), height)
      const left = Math.max(this.#x(from), 0)
      const room = this.#x(end) - left - 16
      pen.fillStyle = this.#colour('on-lease')
      pen.textAlign = 'left'
      const short = label.replace('token ', '')
      const text = pen.measureText(label).width <= room ? label : short
      if (pen.measureText(text).width <= room) pen.fillText(text, left + 9, y + 1)
    }
  }

  #badLines(now: number): void {
    const pen = this.#pen
    pen.strokeStyle = this.#colour('fault')
    pen.lineWidth = 2
    pen.setLineDash([2, 4])
    for (const { from, to, lane } of this.lanes.badLines) {
      const end = Math.min(to, now)
      if (from > now || !this.#isSeen(from, end)) continue
      const y = (lane + 1) * this.#lane - 5
      this.#line(Math.max(this.#x(from), 0), y, this.#x(end), y)
    }
    pen.setLineDash([])
  }

  #marks(now: number): void {
    const pen = this.#pen
    for (const { at, lane } of this.lanes.faults) {
      if (at > now || !this.#isSeen(at, at)) continue
      const [x, y] = [this.#x(at), this.#y(lane)]
      pen.fillStyle = this.#colour('fault')
      pen.beginPath()
      pen.moveTo(x, y - 8)
      pen.lineTo(x + 7, y)
      pen.lineTo(x, y + 8)
      pen.lineTo(x - 7, y)
      pen.fill()
    }
    pen.textAlign = 'center'
    for (const { at, lane, client, came } of this.lanes.writes) {
      if (at > now || !this.#isSeen(at - 1, at + 1)) continue
      pen.strokeStyle = this.#colour(this.#client(client))
      pen.lineWidth = 2
      this.#line(this.#x(at), this.#y(client), this.#x(at), this.#y(lane) - 10)
      this.#dot(this.#x(at), this.#y(lane), 10, came)
      pen.fillStyle = this.#colour('on-lease')
      pen.fillText({ good: '✓', bad: '!', refused: '×' }[came], this.#x(at), this.#y(lane) + 1)
    }
  }

  #line(x1: number, y1: number, x2: number, y2: number): void {
    this.#pen.beginPath()
    this.#pen.moveTo(x1, y1)
    this.#pen.lineTo(x2, y2)
    this.#pen.stroke()
  }

  #pill(x: number, y: number, width: number, height: number): void {
    const left = Math.max(x, -height)
    const right = Math.min(x + width, this.#width + height)
    this.#pen.beginPath()
    this.#pen.roundRect(left, y, Math.max(right - left, 4), height, Math.min(height / 2, Math.max(right - left, 4) / 2))
    this.#pen.fill()
  }

  #dot(x: number, y: number, size: number, fill: Colour): void {
    this.#pen.fillStyle = this.#colour(fill)
    this.#pen.beginPath()
    this.#pen.arc(x, y, size, 0, 2 * Math.PI)
    this.#pen.fill()
  }
}
