import { expect, test } from 'vitest'
import { startMongodb } from '../../../harness/servers/mongodb.ts'
import { ONE_EACH, roundTripsOf } from '../shared/round-trips.ts'
import { open } from './clients.ts'

test.each([
  { what: 'a server without a replica set', replicaSet: false },
  { what: 'a replica set', replicaSet: true },
])('one command an acquire and one a release, and one for 200 renewals, on $what', async ({ replicaSet }) => {
  await using server = await startMongodb({ replicaSet })
  await using opened = open(server.url, {}, { monitorCommands: true })
  let commands = 0
  opened.client.on('commandStarted', () => commands++)
  // It connects, too: a client that is not connected yet asks the server once what it is.
  await opened.engine.init!()
  expect(await roundTripsOf(opened.engine, () => commands)).toEqual({
    ...ONE_EACH,
    // A read finds the highest counter.
    several: [2, 1],
    severalAgain: [2, 1],
    readerOfSeveral: [2, 1],
    joinsSeveral: [2, 1],
    // A read finds which one is gone, and the others are proved once more.
    renewalWithLoss: 3,
  })
})
