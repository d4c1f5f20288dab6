/** Undefined for text that is not JSON. */
export function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

export function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}

/** Returns '' for what is not a string: a server leaves an empty value out. */
export function fromBase64(value: unknown): string {
  return typeof value === 'string' ? Buffer.from(value, 'base64').toString() : ''
}
