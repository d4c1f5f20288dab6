/** The machine's monotonic clock, the same in all of its processes, so that what they note can be put in order. */
export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}
