/** Settings as command line arguments: `{ port: 1 }` becomes `--port 1`. */
export function flags(settings: Record<string, string | number>): string[] {
  return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
}

/** The same as `--port=1`, for programs that insist on the equals sign. */
export function assignments(settings: Record<string, string | number>): string[] {
  return Object.entries(settings).map(([name, value]) => `--${name}=${value}`)
}
