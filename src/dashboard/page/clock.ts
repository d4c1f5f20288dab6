/** The one file of the page that reads the browser's clock or sets a timer. */
export function nowMs(): number {
  return performance.now()
}

export function every(intervalMs: number, run: () => void): void {
  setInterval(run, intervalMs)
}

export function after(delayMs: number, run: () => void): () => void {
  const timer = setTimeout(run, delayMs)
  return () => clearTimeout(timer)
}
