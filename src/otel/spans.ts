import {
  context,
  SpanStatusCode,
  trace,
  type Attributes,
  type Context,
  type Span,
  type Tracer,
} from '@opentelemetry/api'
import type { LockEvent } from '../events.ts'
import type { GuardEvent } from '../guards/guard.ts'
import { commonAttributes, errorType, messageWithout, type Classify } from './attributes.ts'

interface OpenCall {
  readonly span: Span
  /** The context of the caller. */
  readonly context: Context
  readonly common: Attributes
}

/**
 * A span for acquiring and one for holding. Both are children of the span that was active at the call, one after the other, and
 * the hold is linked to its acquire. It is not a child of the acquire, whose span has ended by then. There is one exception:
 * if no span was active at the call, the hold is a child of the acquire, so that both are in one trace.
 */
export class Spans {
  readonly #tracer: Tracer
  readonly #classify: Classify | undefined
  readonly #calls = new Map<number, OpenCall>()
  /** By owner. */
  readonly #holds = new Map<string, Span>()

  constructor(tracer: Tracer, classify?: Classify) {
    this.#tracer = tracer
    this.#classify = classify
  }

  heard(event: LockEvent | GuardEvent, engine: string): void {
    switch (event.type) {
      case 'asked':
        return this.#asked(event, engine)
      case 'refused': {
        const { reason, holder } = event
        const attributes = { 'ringfence.reason': reason, ...(holder !== undefined && { 'ringfence.holder': holder }) }
        this.#calls.get(event.call)?.span.addEvent('refused', attributes)
        return
      }
      case 'failed':
        this.#calls.get(event.call)?.span.addEvent('failed', failure(event.resources, event.cause))
        return
      case 'waiting': {
        const holder = event.holder === undefined ? {} : { 'ringfence.holder': event.holder }
        this.#calls.get(event.call)?.span.addEvent('waiting', holder)
        return
      }
      case 'granted':
        return this.#granted(event)
      case 'denied':
        return this.#denied(event)
      case 'renewed':
        this.#holds.get(event.owner)?.addEvent('renewed', { 'ringfence.slack': event.slackMs / 1000 })
        return
      case 'doubtful': {
        const left = { 'ringfence.slack': event.remainingMs / 1000 }
        this.#holds.get(event.owner)?.addEvent('doubtful', { ...left, ...failure(event.resources, event.cause) })
        return
      }
      case 'lost':
        return this.#ended(event.owner, 'lost', event.reason)
      case 'released':
        if (event.ours === true) return this.#ended(event.owner, 'released')
        if (event.ours === false) return this.#ended(event.owner, 'lost', 'unnoticed')
        return this.#ended(event.owner, 'unknown', event.cause === undefined ? 'unknown' : errorType(event.cause))
      case 'left':
      case 'moved':
        return this.#ended(event.owner, event.type)
      case 'probed':
      case 'unrecorded':
      case 'attempt':
      case 'stalled':
      case 'roundTrip':
      case 'rejected':
    }
  }

  #asked({ call, resources, shared }: Extract<LockEvent, { type: 'asked' }>, engine: string): void {
    const active = context.active()
    const attributes = { ...commonAttributes(engine, resources, this.#classify), 'ringfence.shared': shared }
    const span = this.#tracer.startSpan('ringfence acquire', { attributes }, active)
    // Not sampled, or tracing is off.
    if (!span.isRecording()) return
    const parent = trace.getSpan(active) === undefined ? trace.setSpan(active, span) : active
    this.#calls.set(call, { span, context: parent, common: attributes })
  }

  #granted({ call, owner, token, handedOver }: Extract<LockEvent, { type: 'granted' }>): void {
    const found = this.#taken(call)
    if (found === undefined) return
    const lease = { 'ringfence.token': String(token), 'ringfence.owner': owner }
    found.span.setAttributes({ ...lease, 'ringfence.outcome': 'granted', 'ringfence.handed_over': handedOver })
    found.span.end()
    const links = [{ context: found.span.spanContext() }]
    const attributes = { ...found.common, ...lease }
    const span = this.#tracer.startSpan('ringfence hold', { attributes, links }, found.context)
    this.#holds.set(owner, span)
  }

  #denied({ call, reason, cause, resources }: Extract<LockEvent, { type: 'denied' }>): void {
    const span = this.#taken(call)?.span
    if (span === undefined) return
    span.setAttribute('ringfence.outcome', reason)
    // A call that was refused, aborted or closed has an answer. Only one that timed out or failed counts as an error.
    if (reason === 'timeout' || reason === 'failed') {
      const { 'error.type': type, 'exception.message': message } = failure(resources, cause)
      span.setAttribute('error.type', type)
      span.setStatus({ code: SpanStatusCode.ERROR, message })
    }
    span.end()
  }

  #ended(owner: string, outcome: string, error?: string): void {
    const span = this.#holds.get(owner)
    if (span === undefined) return
    this.#holds.delete(owner)
    span.setAttribute('ringfence.outcome', outcome)
    if (error !== undefined) {
      span.setAttribute('error.type', error)
      span.setStatus({ code: SpanStatusCode.ERROR, message: `${outcome}: ${error}` })
    }
    span.end()
  }

  #taken(call: number): OpenCall | undefined {
    const found = this.#calls.get(call)
    this.#calls.delete(call)
    return found
  }
}

function failure(resources: readonly string[], cause: unknown): { 'error.type': string; 'exception.message': string } {
  const message = cause instanceof Error ? messageWithout(resources, cause) : ''
  return { 'error.type': errorType(cause), 'exception.message': message }
}
