import { headerOf, isNotFound, isThereAlready, numberIn, type Gateway, type Json } from './gateway.ts'

/** etcd's own leases: keys that are bound to one go with it. */
export interface EtcdLeases {
  /** Repeatable: one that is there already is renewed instead. */
  grant(id: string, seconds: number, timeoutMs: number): Promise<void>
  /** Undefined when there is none with this id. */
  keepAlive(id: string, timeoutMs: number): Promise<KeptAlive | undefined>
  /** False when it was gone already. */
  revoke(id: string, timeoutMs: number): Promise<boolean>
  /** How long it lasts unless renewed, rounded up; undefined when it is gone. */
  remainingMs(id: string, timeoutMs: number): Promise<number | undefined>
}

export interface KeptAlive {
  /** The leader's term before the renewal, as the member knew it that we asked. */
  readonly term: string
}

export function etcdLeases(gateway: Gateway): EtcdLeases {
  return {
    async grant(id, seconds, timeoutMs) {
      try {
        await gateway.call('lease/grant', { ID: id, TTL: String(seconds) }, timeoutMs)
      } catch (error) {
        if (!isThereAlready(error)) throw error
        // Ours, from an attempt whose answer was lost, and older than this one.
        await gateway.call('lease/keepalive', { ID: id }, timeoutMs)
      }
    },
    async keepAlive(id, timeoutMs) {
      const answer = (await gateway.call('lease/keepalive', { ID: id }, timeoutMs))['result'] as Json
      const { term } = headerOf(answer)
      // An etcd lease that is gone is answered without a TTL.
      return numberIn(answer['TTL'] ?? '0', answer) > 0n ? { term } : undefined
    },
    async revoke(id, timeoutMs) {
      try {
        await gateway.call('lease/revoke', { ID: id }, timeoutMs)
        return true
      } catch (error) {
        if (isNotFound(error)) return false
        throw error
      }
    },
    async remainingMs(id, timeoutMs) {
      const answer = await gateway.call('lease/timetolive', { ID: id }, timeoutMs)
      const [left, granted] = [numberIn(answer['TTL'] ?? '0', answer), numberIn(answer['grantedTTL'] ?? '0', answer)]
      if (left < 0n) return undefined
      // Told in whole seconds, rounded down.
      return Number(left < granted ? left + 1n : granted) * 1000
    },
  }
}
