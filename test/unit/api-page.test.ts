import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'

const root = path.resolve(import.meta.dirname, '../..')
const api = readFileSync(`${root}/test/public-api.txt`, 'utf8')
const page = readFileSync(`${root}/docs/api.md`, 'utf8')

test.each(['LossReason', 'DenialReason'])('docs/api.md explains every value of %s', (type) => {
  const values = new RegExp(`^export type ${type} = (.*);$`, 'm').exec(api)![1]!.match(/[\w-]+/g)!
  expect(values.length).toBeGreaterThan(4)
  for (const value of values) expect(page).toMatch(new RegExp(`^\\| \`${value}\` \\| .+ \\|$`, 'm'))
})

test.each(
  (
    'LocksOptions LeaseOptions WaitOptions OnceOptions ElectOptions SqlGuardOptions ColumnOptions TransactionOptions ' +
    'MongodbGuardOptions UpdateOptions RedisGuardOptions SetOptions CasGuardOptions ObjectStoreOptions GuardOptions ' +
    'HttpGuardOptions<Request> ConformanceSetup LeaseInfo Finding'
  ).split(' '),
)('docs/api.md names every member of %s', (type) => {
  const [, body = ''] = api.split(`export interface ${type} `)[1]!.split(/\{\n|\n\}/)
  const members = [...body.matchAll(/^ {4}(?:readonly )?(\w+)[?:(]/gm)].map((match) => match[1]!)
  expect(members.length).toBeGreaterThan(0)
  for (const member of members) expect(page).toMatch(new RegExp(`\`[^\`]*\\b${member}\\b[^\`]*\``))
})
