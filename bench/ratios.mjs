/**
 * How one library fares against others, from the rows and rounds of a table. Nothing here measures, so that the documents
 * can be made from a kept file by the same code.
 */

const LIMITS = /^(bare commands|its scripts alone)/

/** What a row is, by its name. @returns {'ours' | 'baseline' | 'limit' | 'defaults' | 'peer'} */
export function kindOf(name) {
  if (name === 'ringfence') return 'ours'
  if (name.startsWith('ringfence at ')) return 'baseline'
  if (LIMITS.test(name)) return 'limit'
  return name.endsWith(', defaults') ? 'defaults' : 'peer'
}

/** The row of a library. */
export function of(rows, name) {
  return rows.find(({ library }) => library === name)
}

/** The peer that does best, by the figure that counts; of one that did not finish, what it came to. */
export function bestPeer(rows, { kind = 'peer', key = 'perSecond' } = {}) {
  const others = rows.filter(({ library }) => kindOf(library) === kind)
  return others.reduce((best, row) => ((row[key] || 0) > (best[key] || 0) ? row : best))
}

/**
 * How many times as fast one is as another: round by round, and by two other ways to look at the same sections, which should
 * not tell another story. Without rounds in common there are only the rates.
 */
export function against({ rows, rounds }, base, name = 'ringfence') {
  const [ours, theirs] = [of(rows, name), rows.find(({ library }) => library.startsWith(base))]
  const ofRates = ours.perSecond / theirs.perSecond
  const sideBySide = rounds?.ratio(name, base) ?? { rounds: 0 }
  const ofP50 = ours.requestsPerSection === undefined ? undefined : theirs.p50Ms / ours.p50Ms
  return { base, ...(sideBySide.rounds > 1 ? sideBySide : { value: ofRates, rounds: 0 }), ofRates, ofP50 }
}

/** ringfence against the best of the others; where the bare commands took turns with all, their ratio to these decides. */
export function againstBest({ rows, rounds }, kind = 'peer') {
  const key = (of(rows, 'bare commands')?.perSecond ?? null) === null ? 'perSecond' : 'toBare'
  return against({ rows, rounds }, bestPeer(rows, { kind, key }).library)
}

/** ringfence, and the other build of it, against everyone else: a table. */
export function againstAll(measured, title = 'ratios') {
  const names = measured.rows.map(({ library }) => library)
  const builds = names.filter((name) => /^(ours|baseline)$/.test(kindOf(name)))
  const rows = builds.flatMap((build) =>
    names
      .filter((name) => name !== build && kindOf(name) !== 'ours')
      .map((name) => ({ ...against(measured, name, build), library: `${build} / ${name}` })),
  )
  return { title, columns: AGAINST_COLUMNS, rows }
}

const AGAINST_COLUMNS = [
  { key: 'library', title: '' },
  { key: 'value', title: 'median of rounds', ratio: true },
  { key: 'low', title: 'from', ratio: true },
  { key: 'high', title: 'to', ratio: true },
  { key: 'ofRates', title: 'of the rates', ratio: true },
  { key: 'ofP50', title: 'of the p50', ratio: true },
  { key: 'drift', title: 'last third to first', ratio: true },
]
