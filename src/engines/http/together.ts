/** Works on many things at once, but on so many at most; the results come in their order. */
export async function together<T, R>(things: readonly T[], most: number, work: (thing: T) => Promise<R>): Promise<R[]> {
  const results: R[] = []
  let next = 0
  const lane = async (): Promise<void> => {
    for (let index = next++; index < things.length; index = next++) results[index] = await work(things[index]!)
  }
  await Promise.all(Array.from({ length: Math.min(most, things.length) }, lane))
  return results
}
