import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * The files that take longest, in the order in which they start: what takes a minute must not start last. Those of the
 * simulator, which keep a core busy, are apart from each other.
 */
export const FIRST: readonly string[] = [
  'sim/seeds-1',
  'process/chaos',
  'process/guards',
  'engines/consul/trials',
  'engines/mariadb/trials',
  'process/cli/engines',
  'sim/explore',
  'engines/postgres/trials',
  'engines/redis/conformance-groups',
  'process/cli/messages',
  'engines/mongodb/trials',
  'sim/seeds-2',
  'engines/redis/conformance',
  'engines/redis/faults',
  'engines/zookeeper/trials',
  'engines/etcd/trials',
  'sim/admission',
  'process/cli/loss',
  'engines/postgres/conformance',
  'engines/redis/faults-restart',
  'sim/gate',
  'examples',
  'harness/consensus-servers',
  'engines/mongodb/conformance',
  'engines/redis/faults-failover',
]

/** A clone knows no times of an earlier run, and files in the order of their size end with the longest. */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).sort((a, b) => placeOf(a) - placeOf(b))
  }
}

function placeOf({ moduleId }: TestSpecification): number {
  const index = FIRST.findIndex((name) => moduleId.endsWith(`/test/${name}.test.ts`))
  return index < 0 ? FIRST.length : index
}
