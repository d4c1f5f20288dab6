/** Of a time such as 30s, 10m or 8h; ends the process with a usage error for anything else. */
export function secondsOf(text, flag) {
  const [, count, unit] = /^(\d+)(s|m|h)$/.exec(text) ?? []
  if (count === undefined || Number(count) === 0) {
    console.error(`${flag}: expected a time such as 30s, 10m or 8h, got '${text}'`)
    process.exit(2)
  }
  return Number(count) * { s: 1, m: 60, h: 3600 }[unit]
}
