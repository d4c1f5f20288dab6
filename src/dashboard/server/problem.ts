import type { ProblemDetails } from '../protocol.ts'

/** A request that is answered with a problem instead of what it asked for. */
export class Refused extends Error {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>

  constructor(status: number, detail: string, headers: Readonly<Record<string, string>> = {}) {
    super(detail)
    this.status = status
    this.headers = headers
  }

  response(): Response {
    const { status, message, headers } = this
    const problem: ProblemDetails = { type: 'about:blank', title: TITLES[status] ?? 'Refused', status, detail: message }
    return new Response(JSON.stringify(problem), {
      status,
      headers: { ...COMMON, ...headers, 'content-type': 'application/problem+json' },
    })
  }
}

const TITLES: Readonly<Record<number, string>> = {
  400: 'Bad request',
  401: 'Not logged in',
  403: 'Not allowed',
  404: 'Not found',
  405: 'Method not allowed',
  408: 'Too slow',
  409: 'Not as it was',
  413: 'Too large',
  414: 'Address too long',
  415: 'Wrong content type',
  421: 'Wrong host',
  503: 'Not now',
}

/** On every answer. Nothing of ours may be embedded, sniffed, cached by others or passed on to other sites. */
export const COMMON: Readonly<Record<string, string>> = {
  'cache-control': 'no-store',
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  // Not no-referrer: with it browsers say `Origin: null` when they send the login form, as if it were another site's.
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

export function json(value: object, status = 200): Response {
  return new Response(JSON.stringify(value), { status, headers: { ...COMMON, 'content-type': 'application/json' } })
}
