import { describe, expect, test } from 'vitest'
import type { Finding } from '../../../../../src/engine.ts'
import { checkMembers } from '../../../../../src/engines/redis/doctor/members.ts'
import type { RedisCheckPlan } from '../../../../../src/engines/redis/doctor/server.ts'
import { checkVoters } from '../../../../../src/engines/redis/doctor/voters.ts'

/** A quorum of nodes a, b, …: undefined votes, a number of milliseconds sits out for that long. */
function planOf(...sittingMs: readonly (number | undefined)[]): RedisCheckPlan {
  const standings = sittingMs.map((remainingMs, index) => ({
    label: 'abcde'[index]!,
    look: { since: 1 },
    standing: remainingMs === undefined ? { kind: 'voter' } : { kind: 'out', remainingMs, why: { kind: 'restarted' } },
    error: undefined,
  }))
  return { clients: sittingMs.map(() => ({ label: 'x' })), restart: 'strict', standings } as unknown as RedisCheckPlan
}

function voters(...sittingMs: readonly (number | undefined)[]): Finding {
  return checkVoters(planOf(...sittingMs), [])[0]!
}

describe('the doctor about nodes that sit out', () => {
  test('names the time of each node, and when a majority votes again', () => {
    expect(voters(30_200, 58_900, undefined)).toMatchObject({
      severity: 'critical',
      found: '1 of 3 nodes may vote; 2 are needed; a sits out for 31 s more; b sits out for 59 s more.',
      meaning: expect.stringMatching(/^No lease can be granted for 31 s\. They restarted, or are new/) as string,
      remedy: expect.stringMatching(/^Wait: they vote by themselves/) as string,
    })
  })

  test('does not call a node restarted that was let in for another maxTtl', () => {
    const plan = planOf(300_000, 300_000, 300_000)
    const why = { kind: 'another maxTtl', sitOutMs: 61_000 }
    const standings = plan.standings!.map((node) => ({ ...node, standing: { ...node.standing, why } }))
    const [finding] = checkVoters({ ...plan, standings } as unknown as RedisCheckPlan, [])
    expect(finding!.meaning).toBe(
      'No lease can be granted for 300 s. They have sat out only for the shorter maxTtl of other clients, and may have forgotten leases that are not over.',
    )
  })

  test('names nodes with the same time together', () => {
    expect(voters(60_100, 60_900, undefined).found).toMatch(/; a, b sit out for 61 s more\.$/)
  })

  test('says nothing of a time when too few nodes answer at all', () => {
    const plan = planOf(30_000, undefined, undefined)
    const silent = plan.standings!.map((node, index) => (index === 0 ? node : { ...node, standing: undefined }))
    const [finding] = checkVoters({ ...plan, standings: silent }, [])
    expect(finding!.meaning).toMatch(/^No lease can be granted until more nodes answer\. It restarted/)
    expect(finding!.remedy).toMatch(/^Bring the other nodes back/)
  })

  test('counts only voters as able to fail', () => {
    const plan = planOf(30_000, 30_000, undefined, undefined, undefined)
    const seen = plan.clients.map((_, member) => ({
      server: { member, label: String(member), client: {} },
      facts: { info: () => undefined, setting: () => undefined },
    }))
    const quorum = checkMembers(plan, seen as never).find(({ id }) => id === 'redis/quorum')
    expect(quorum).toMatchObject({
      severity: 'warning',
      found: '5 of 5 nodes answer, 2 of them sit out; 3 are needed.',
      meaning: 'Locks work, but not if another node fails.',
    })
  })
})
