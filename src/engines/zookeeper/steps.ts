import type { LeaseRequest } from '../../engine.ts'
import { MODE, numberOf, type ZookeeperAcl, type ZnodeStat, type ZookeeperTransaction } from './client.ts'
import { CODE, isCode, RefusedError } from './errors.ts'
import {
  compareSequence,
  encodeName,
  firstPlace,
  holdersAmong,
  leftName,
  placePrefix,
  readLeft,
  readPlace,
  type QueuePlace,
} from './names.ts'
import { encodeData } from './znode-data.ts'
import { EMPTY, type Znodes } from './znodes.ts'

/** Our own znodes, one in the folder of each resource, all made in one transaction. */
export interface QueueEntry {
  readonly paths: readonly string[]
  readonly token: bigint
}

/** A resource's folder: its queue in the order of arrival, and the owners of leases that were left to run out. */
export interface ResourceFolder {
  readonly exists: boolean
  readonly places: readonly QueuePlace[]
  readonly left: readonly string[]
}

type PlaceRequest = Pick<LeaseRequest, 'resources' | 'owner' | 'ttlMs' | 'shared'>

/** Folders come and go with their znodes. After meeting that this often in a row, an attempt fails. */
const ROUNDS = 8

/**
 * The znodes of leases: a folder for each resource in use, with the znodes of its holder and of those that wait, numbered by
 * the server. The folder is removed with its last znode.
 */
export class ZookeeperSteps {
  readonly #znodes: Znodes
  readonly #root: string
  readonly #acl: readonly ZookeeperAcl[]

  constructor(znodes: Znodes, { root, acl }: { root: string; acl: readonly ZookeeperAcl[] }) {
    this.#znodes = znodes
    this.#root = root
    this.#acl = acl
  }

  folder(resource: string): string {
    return `${this.#root}/${encodeName(resource)}`
  }

  /** Makes the root folder. Returns the paths that it made. */
  async prepare(withinMs: number): Promise<readonly string[]> {
    const made: string[] = []
    const steps = this.#root.split('/').filter((step) => step !== '')
    for (let count = 1; count <= steps.length; count++) {
      const path = `/${steps.slice(0, count).join('/')}`
      if ((await this.#znodes.stat(path, withinMs)) !== null) continue
      try {
        await this.#znodes.commit(withinMs, (transaction) =>
          transaction.create(path, EMPTY, this.#acl, MODE.persistent),
        )
        made.push(path)
      } catch (error) {
        if (isCode(error, CODE.nodeExists)) continue
        // This can only be the first part of the path: nobody removes one that we have just seen.
        if (!isCode(error, CODE.noNode)) throw error
        throw new RefusedError(CODE.badArguments, new Error('the chroot of the connection string does not exist'))
      }
    }
    return made
  }

  /**
   * Takes the first place of every queue if none of the folders exists yet, in one round trip. Returns undefined if one does;
   * `look` then sees who is in it, even if our server had fallen behind the leader before.
   */
  async enterAlone(request: PlaceRequest, withinMs: number): Promise<QueueEntry | undefined> {
    const { resources, ttlMs } = request
    const data = encodeData({ ttlMs, heldMs: 0 })
    const paths = resources.map((resource) => `${this.folder(resource)}/${firstPlace(request)}`)
    try {
      const [, stat] = await Promise.all([
        this.#znodes.commit(withinMs, (transaction) => {
          for (const resource of resources) this.#create(transaction, resource, true, request, data)
        }),
        // Sent without waiting for the transaction. The name is known, because the server counts from 0.
        this.#znodes.stat(paths[0]!, withinMs),
      ])
      if (stat !== null) this.#znodes.learn(stat)
      return this.#entered(paths, stat)
    } catch (error) {
      if (isCode(error, CODE.nodeExists)) return undefined
      throw error
    }
  }

  /** Takes the last place of every queue in one transaction: nobody can be before us in one and behind us in another. */
  async enter(request: PlaceRequest, withinMs: number): Promise<QueueEntry> {
    const { resources, ttlMs } = request
    const data = encodeData({ ttlMs })
    let lacking: ReadonlySet<string> = new Set()
    for (let round = 0; round < ROUNDS; round++) {
      try {
        const results = await this.#znodes.commit(withinMs, (transaction) => {
          for (const resource of resources) this.#create(transaction, resource, lacking.has(resource), request, data)
        })
        const paths = results.flatMap(({ path }) => (path?.includes(`/${placePrefix(request)}`) === true ? [path] : []))
        return this.#entered(paths, await this.#znodes.stat(paths[0]!, withinMs))
      } catch (error) {
        if (!isCode(error, CODE.nodeExists, CODE.noNode)) throw error
        // Another client has just removed a folder, or made one.
        const stats = await Promise.all(resources.map((resource) => this.#znodes.stat(this.folder(resource), withinMs)))
        lacking = new Set(resources.filter((_, index) => stats[index] === null))
      }
    }
    throw new Error(`the folders of the resources came and went ${ROUNDS} times in a row`)
  }

  /** Finds what an `enter` whose answer was lost has done. Returns undefined if it has done nothing. */
  async find({ resources, owner }: PlaceRequest, withinMs: number): Promise<QueueEntry | undefined> {
    const folders = await this.look(resources, withinMs)
    const paths = folders.flatMap(({ places }, index) => {
      const own = places.find((place) => place.owner === owner)
      return own === undefined ? [] : [`${this.folder(resources[index]!)}/${own.name}`]
    })
    if (paths.length < resources.length) return undefined
    return this.#entered(paths, await this.#znodes.stat(paths[0]!, withinMs))
  }

  /** Returns which of these znodes do not exist. */
  async missing(paths: readonly string[], withinMs: number): Promise<ReadonlySet<string>> {
    const stats = await Promise.all(paths.map((path) => this.#znodes.stat(path, withinMs)))
    return new Set(paths.filter((_, index) => stats[index] === null))
  }

  /** Sees everything that was done before our own last write. */
  look(resources: readonly string[], withinMs: number): Promise<readonly ResourceFolder[]> {
    return Promise.all(
      resources.map(async (resource) => {
        const names = await this.#znodes.children(this.folder(resource), withinMs)
        const places = (names ?? []).flatMap((name) => readPlace(name) ?? [])
        places.sort((a, b) => compareSequence(a.sequence, b.sequence))
        if (places.some(({ sequence }, index) => sequence === places[index + 1]?.sequence)) {
          // After 2^31 znodes in a folder that was never empty, some servers stop counting: nobody could tell who was first.
          const message = `the numbers of ${this.folder(resource)} are used up; remove it while nobody uses it`
          throw new RefusedError(CODE.badArguments, new Error(message))
        }
        return { exists: names !== undefined, places, left: (names ?? []).flatMap((name) => readLeft(name) ?? []) }
      }),
    )
  }

  /** Returns the names of all resources' folders. */
  async folders(withinMs: number): Promise<readonly string[]> {
    return (await this.#znodes.children(this.#root, withinMs)) ?? []
  }

  /** Removes our znodes. `crowded`: others seem to wait, so the folders will stay. Returns false if one did not exist. */
  async remove(
    resources: readonly string[],
    paths: readonly string[],
    withinMs: number,
    crowded: boolean,
  ): Promise<boolean> {
    const znodes = (transaction: ZookeeperTransaction): void => {
      for (const path of paths) transaction.remove(path)
    }
    if (!crowded) {
      try {
        await this.#znodes.commit(withinMs, (transaction) => {
          znodes(transaction)
          for (const resource of resources) transaction.remove(this.folder(resource))
        })
        return true
      } catch (error) {
        if (!isCode(error, CODE.notEmpty, CODE.noNode)) throw error
      }
    }
    const committed = this.#znodes.commit(withinMs, znodes)
    const [all, folders] = await Promise.allSettled([committed, this.look(resources, withinMs)])
    if (all.status === 'rejected') {
      if (!isCode(all.reason, CODE.noNode)) throw all.reason
      await Promise.all(paths.map((path) => this.#znodes.remove(path, withinMs)))
    }
    if (folders.status === 'fulfilled') await this.#tidy(resources, folders.value, withinMs)
    return all.status === 'fulfilled'
  }

  /** Removes everything that an owner has. Returns true if it held all of the resources. */
  async removeOwner(resources: readonly string[], owner: string, withinMs: number): Promise<boolean> {
    const folders = await this.look(resources, withinMs)
    let held = true
    const paths: string[] = []
    for (const [index, { places, left }] of folders.entries()) {
      const folder = this.folder(resources[index]!)
      const own = places.filter((place) => place.owner === owner).map(({ name }) => name)
      if (left.includes(owner)) own.push(leftName(owner))
      else if (!places.slice(0, holdersAmong(places)).some(({ name }) => name === own[0])) held = false
      for (const name of own) paths.push(`${folder}/${name}`)
    }
    if (paths.length === 0) return false
    const removed = await Promise.all(paths.map((path) => this.#znodes.remove(path, withinMs)))
    await this.#tidy(resources, await this.look(resources, withinMs), withinMs)
    return held && removed.every((was) => was)
  }

  /** After this, nothing can be done any more that was sent on an earlier connection. */
  async settle(withinMs: number): Promise<void> {
    // It has to be a write: our server might not know yet what the leader has done.
    await this.#znodes.commit(withinMs, (transaction) => transaction.check(this.#root))
  }

  /** Replaces our znodes by znodes that stay when our session ends, and block everyone for the ttl. */
  async leave(
    { resources, paths, owner, token }: { resources: readonly string[]; owner: string } & QueueEntry,
    ttlMs: number,
    withinMs: number,
  ): Promise<void> {
    const data = encodeData({ ttlMs, heldMs: 0, token })
    await this.#znodes.commit(withinMs, (transaction) => {
      for (const resource of resources) {
        transaction.create(`${this.folder(resource)}/${leftName(owner)}`, data, this.#acl, MODE.persistent)
      }
      for (const path of paths) transaction.remove(path)
    })
  }

  /** Removes empty folders, which processes that died have left. Returns their paths. */
  async sweep(names: readonly string[], withinMs: number): Promise<readonly string[]> {
    const empty = await this.empty(names, withinMs)
    const removed = await Promise.all(empty.map((path) => this.#znodes.remove(path, withinMs)))
    return empty.filter((_, index) => removed[index])
  }

  /** Returns the paths of those folders that are empty. */
  async empty(names: readonly string[], withinMs: number): Promise<readonly string[]> {
    const paths = names.map((name) => `${this.#root}/${name}`)
    const stats = await Promise.all(paths.map((path) => this.#znodes.stat(path, withinMs)))
    return paths.filter((_, index) => stats[index]?.numChildren === 0)
  }

  #create(
    transaction: ZookeeperTransaction,
    resource: string,
    folderToo: boolean,
    request: PlaceRequest,
    data: Buffer,
  ): void {
    const folder = this.folder(resource)
    if (folderToo) transaction.create(folder, EMPTY, this.#acl, MODE.persistent)
    transaction.create(`${folder}/${placePrefix(request)}`, data, this.#acl, MODE.ephemeralSequential)
  }

  #entered(paths: readonly string[], stat: ZnodeStat | null): QueueEntry {
    if (stat === null) throw new Error('a znode that was just made is gone')
    return { paths, token: numberOf(stat.czxid) }
  }

  async #tidy(resources: readonly string[], folders: readonly ResourceFolder[], withinMs: number): Promise<void> {
    const empty = resources.filter((_, index) => {
      const { exists, places, left } = folders[index]!
      return exists && places.length === 0 && left.length === 0
    })
    await Promise.all(empty.map((resource) => this.#znodes.remove(this.folder(resource), withinMs)))
  }
}
