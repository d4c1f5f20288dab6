// Where the time of some sections went, by V8's profiler.
import { Session } from 'node:inspector/promises'

/**
 * Self times in µs a section, by place and by function, and the profile. A short interval, where there is little to sample, costs more.
 *
 * @param {() => Promise<number>} work returns how many sections there were
 */
export async function sampled(work, intervalUs = 200) {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.setSamplingInterval', { interval: intervalUs })
  await session.post('Profiler.start')
  const sections = await work()
  const { profile } = await session.post('Profiler.stop')
  session.disconnect()
  const spent = times(profile)
  return { profile, places: summed(spent, placeOf, sections), functions: summed(spent, nameOf, sections) }
}

/** Self time in µs by call frame. */
function times({ nodes, samples, timeDeltas }) {
  const frames = new Map(nodes.map((node) => [node.id, node.callFrame]))
  return samples.map((id, index) => ({ frame: frames.get(id), amount: timeDeltas[index] }))
}

export function sizes(node) {
  return [{ frame: node.callFrame, amount: node.selfSize }, ...node.children.flatMap(sizes)]
}

/** Most of all first. */
export function summed(samples, keyOf, sections) {
  const sums = new Map()
  for (const { frame, amount } of samples) {
    const key = keyOf(frame)
    sums.set(key, (sums.get(key) ?? 0) + amount / sections)
  }
  return new Map([...sums].sort((a, b) => b[1] - a[1]))
}

/** A package, Node itself, a file of ringfence, or what V8 calls by a name in brackets. */
export function placeOf({ functionName, url }) {
  if (url === '') return functionName.startsWith('(') ? functionName : 'native code'
  if (url.startsWith('node:')) return 'node'
  return shortened(url).replace(/^(node_modules\/(?:@[^/]+\/)?[^/]+).*$/, '$1')
}

export function nameOf({ functionName, url, lineNumber }) {
  return `${functionName || '(anonymous)'} ${shortened(url)}:${lineNumber + 1}`
}

function shortened(url) {
  return url.replace(/^(?:file:\/\/)?\/.*?\/(dist|node_modules|bench)\//, '$1/')
}
