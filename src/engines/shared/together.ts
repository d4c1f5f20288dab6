/** Works on many things at once, on at most `most` of them at a time. The results have the order of the things. */
export async function together<T, R>(things: readonly T[], most: number, work: (thing: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  let next = 0
  const lane = async (): Promise<void> => {
    for (let index = next++; index < things.length; index = next++) results[index] = await work(things[index]!)
  }
  await Promise.all(Array.from({ length: Math.min(most, things.length) }, lane))
  return results
}

/** Splits things, in their order, so that the sizes of each batch add up to at most `most`. A bigger thing is a batch by itself. */
export function batches<T>(things: readonly T[], most: number, sizeOf: (thing: T) => number): T[][] {
  const all: T[][] = []
  let size = Infinity
  for (const thing of things) {
    size += sizeOf(thing)
    if (size > most) {
      all.push([])
      size = sizeOf(thing)
    }
    all.at(-1)!.push(thing)
  }
  return all
}
