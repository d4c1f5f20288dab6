import { BaseSequencer, type TestSpecification } from 'vitest/node'

/**
 * The files that take longest, in the order in which they start: what takes a minute must not start last. Those of the
 * simulator, which keep a core busy, are apart from each other.
 */
export const FIRST: readonly string[] = [
  'sim/seeds-1',
  'process/chaos',
  'process/guards',
  'process/cli/loss',
  'engines/redis/peers/side-by-side',
  'process/mixed-fleet',
  'operating/nodes',
  'sim/explore',
  'browser/docs-site',
  'engines/semaphore',
  'process/cli/engines',
  'engines/postgres/conformance',
  'engines/etcd/cluster',
  'dashboard/engines',
  'engines/postgres/trials',
  'engines/zookeeper/particulars',
  'engines/redis/conformance',
  'sim/seeds-2',
  'browser/health',
  'runtimes/runtimes',
  'engines/redis/unreachable',
  'engines/redis/faults',
  'engines/redis/conformance-groups',
  'process/cli/messages',
  'examples',
  'operating/restore',
  'engines/zookeeper/ensemble',
  'engines/postgres/wakeups',
  'process/package',
  'engines/redis/doctor',
  'engines/redis/faults-inspect',
  'engines/consul/cluster',
  'sim/admission',
  'engines/postgres/doctor',
  'process/cli/exit-codes',
  'engines/consul/trials',
  'otel/prometheus',
  'engines/redis/faults-restart',
  'engines/redis/admission-stand-ins',
  'engines/file/trials',
  'browser/engines',
  'engines/mongodb/doctor',
  'engines/redis/drivers',
  'engines/etcd/leases',
  'engines/consul/conformance',
  'engines/mariadb/trials',
  'sim/gate',
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
