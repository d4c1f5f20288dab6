import type { LeaseRequest } from '../../engine.ts'
import { CODE, isCode, MODE, numberOf, RefusedError, type Acl, type Stat, type Transaction } from './driver.ts'
import {
  compareSequence,
  encodeName,
  firstPlace,
  leftName,
  placePrefix,
  readLeft,
  readPlace,
  type Place,
} from './names.ts'
import { EMPTY, type Nodes } from './nodes.ts'
import { writeNote } from './note.ts'

/** Our own nodes, one in the folder of each resource, all made in one transaction. */
export interface Entry {
  readonly paths: readonly string[]
  readonly token: bigint
}

/** A resource's folder: who stands in line, first come first, and whose lease was left to run out. */
export interface Folder {
  readonly exists: boolean
  readonly places: readonly Place[]
  readonly left: readonly string[]
}

type Wanted = Pick<LeaseRequest, 'resources' | 'owner' | 'ttlMs'>

/** Folders come and go with their nodes; whoever meets that so often in a row should rather start again. */
const ROUNDS = 8

/**
 * The nodes in ZooKeeper: a folder for each resource that is in use, in it the nodes of those who hold it or wait for it,
 * numbered by the server. The folder goes with its last node.
 */
export class Line {
  readonly #nodes: Nodes
  readonly #root: string
  readonly #acl: readonly Acl[]

  constructor(nodes: Nodes, { root, acl }: { root: string; acl: readonly Acl[] }) {
    this.#nodes = nodes
    this.#root = root
    this.#acl = acl
  }

  folder(resource: string): string {
    return `${this.#root}/${encodeName(resource)}`
  }

  /** Makes the folder of all folders. Answers which nodes it made. */
  async prepare(withinMs: number): Promise<readonly string[]> {
    const made: string[] = []
    const steps = this.#root.split('/').filter((step) => step !== '')
    for (let count = 1; count <= steps.length; count++) {
      const path = `/${steps.slice(0, count).join('/')}`
      if ((await this.#nodes.stat(path, withinMs)) !== null) continue
      try {
        await this.#nodes.commit(withinMs, (transaction) => transaction.create(path, EMPTY, this.#acl, MODE.persistent))
        made.push(path)
      } catch (error) {
        if (isCode(error, CODE.nodeExists)) continue
        // Of the first step only: nobody removes one that we have just seen.
        if (!isCode(error, CODE.noNode)) throw error
        throw new RefusedError(CODE.badArguments, new Error('the chroot of the connection string is not there'))
      }
    }
    return made
  }

  /**
   * Takes the first place of every line, if none of them exists yet: one round trip. Undefined if one does; whoever stands
   * in it is then to be seen by `look`, also if our server had fallen behind the leader before.
   */
  async enterAlone({ resources, owner, ttlMs }: Wanted, withinMs: number): Promise<Entry | undefined> {
    const note = writeNote({ ttlMs, heldMs: 0 })
    const paths = resources.map((resource) => `${this.folder(resource)}/${firstPlace(owner)}`)
    try {
      const [, stat] = await Promise.all([
        this.#nodes.commit(withinMs, (transaction) => {
          for (const resource of resources) this.#create(transaction, resource, true, owner, note)
        }),
        // Done after it, without waiting for it: its name is known, since the server counts from 0.
        this.#nodes.stat(paths[0]!, withinMs),
      ])
      if (stat !== null) this.#nodes.learn(stat)
      return this.#entered(paths, stat)
    } catch (error) {
      if (isCode(error, CODE.nodeExists)) return undefined
      throw error
    }
  }

  /** Takes the last place of every line, in one transaction: nobody can be before us in one and behind us in another. */
  async enter({ resources, owner, ttlMs }: Wanted, withinMs: number): Promise<Entry> {
    const note = writeNote({ ttlMs })
    let lacking: ReadonlySet<string> = new Set()
    for (let round = 0; round < ROUNDS; round++) {
      try {
        const results = await this.#nodes.commit(withinMs, (transaction) => {
          for (const resource of resources) this.#create(transaction, resource, lacking.has(resource), owner, note)
        })
        const paths = results.flatMap(({ path }) => (path?.includes(`/${placePrefix(owner)}`) === true ? [path] : []))
        return this.#entered(paths, await this.#nodes.stat(paths[0]!, withinMs))
      } catch (error) {
        if (!isCode(error, CODE.nodeExists, CODE.noNode)) throw error
        // Someone has just removed a folder, or made one.
        const stats = await Promise.all(resources.map((resource) => this.#nodes.stat(this.folder(resource), withinMs)))
        lacking = new Set(resources.filter((_, index) => stats[index] === null))
      }
    }
    throw new Error(`the folders of the resources came and went ${ROUNDS} times in a row`)
  }

  /** What an `enter` has done whose answer was lost; undefined if it has done nothing. */
  async find({ resources, owner }: Wanted, withinMs: number): Promise<Entry | undefined> {
    const folders = await this.look(resources, withinMs)
    const paths = folders.flatMap(({ places }, index) => {
      const own = places.find((place) => place.owner === owner)
      return own === undefined ? [] : [`${this.folder(resources[index]!)}/${own.name}`]
    })
    if (paths.length < resources.length) return undefined
    return this.#entered(paths, await this.#nodes.stat(paths[0]!, withinMs))
  }

  /** Which of these nodes are not there. */
  async missing(paths: readonly string[], withinMs: number): Promise<ReadonlySet<string>> {
    const stats = await Promise.all(paths.map((path) => this.#nodes.stat(path, withinMs)))
    return new Set(paths.filter((_, index) => stats[index] === null))
  }

  /** Up to date with everything that was done before our own last write. */
  look(resources: readonly string[], withinMs: number): Promise<readonly Folder[]> {
    return Promise.all(
      resources.map(async (resource) => {
        const names = await this.#nodes.children(this.folder(resource), withinMs)
        const places = (names ?? []).flatMap((name) => readPlace(name) ?? [])
        places.sort((a, b) => compareSequence(a.sequence, b.sequence))
        if (places.some(({ sequence }, index) => sequence === places[index + 1]?.sequence)) {
          // After 2^31 nodes without a moment's rest some servers stop counting: nobody could tell who was first.
          const message = `the numbers of ${this.folder(resource)} are used up; remove it while nobody uses it`
          throw new RefusedError(CODE.badArguments, new Error(message))
        }
        return { exists: names !== undefined, places, left: (names ?? []).flatMap((name) => readLeft(name) ?? []) }
      }),
    )
  }

  /** The names of all resources' folders. */
  async folders(withinMs: number): Promise<readonly string[]> {
    return (await this.#nodes.children(this.#root, withinMs)) ?? []
  }

  /** Removes our nodes. `crowded`: others seem to wait, so the folders will stay. False if one was not there. */
  async remove(
    resources: readonly string[],
    paths: readonly string[],
    withinMs: number,
    crowded: boolean,
  ): Promise<boolean> {
    const nodes = (transaction: Transaction): void => {
      for (const path of paths) transaction.remove(path)
    }
    if (!crowded) {
      try {
        await this.#nodes.commit(withinMs, (transaction) => {
          nodes(transaction)
          for (const resource of resources) transaction.remove(this.folder(resource))
        })
        return true
      } catch (error) {
        if (!isCode(error, CODE.notEmpty, CODE.noNode)) throw error
      }
    }
    const committed = this.#nodes.commit(withinMs, nodes)
    const [all, folders] = await Promise.allSettled([committed, this.look(resources, withinMs)])
    if (all.status === 'rejected') {
      if (!isCode(all.reason, CODE.noNode)) throw all.reason
      await Promise.all(paths.map((path) => this.#nodes.remove(path, withinMs)))
    }
    if (folders.status === 'fulfilled') await this.#tidy(resources, folders.value, withinMs)
    return all.status === 'fulfilled'
  }

  /** Removes whatever there is of an owner. True if it held all of the resources. */
  async removeOwner(resources: readonly string[], owner: string, withinMs: number): Promise<boolean> {
    const folders = await this.look(resources, withinMs)
    let held = true
    const paths: string[] = []
    for (const [index, { places, left }] of folders.entries()) {
      const folder = this.folder(resources[index]!)
      const own = places.filter((place) => place.owner === owner).map(({ name }) => name)
      if (left.includes(owner)) own.push(leftName(owner))
      else if (own.length === 0 || own[0] !== places[0]?.name) held = false
      for (const name of own) paths.push(`${folder}/${name}`)
    }
    if (paths.length === 0) return false
    const removed = await Promise.all(paths.map((path) => this.#nodes.remove(path, withinMs)))
    await this.#tidy(resources, await this.look(resources, withinMs), withinMs)
    return held && removed.every((was) => was)
  }

  /** Nothing that was sent before on a connection that is gone by now can be done after this. */
  async settle(withinMs: number): Promise<void> {
    // A write, or our server might not know yet what the leader has done.
    await this.#nodes.commit(withinMs, (transaction) => transaction.check(this.#root))
  }

  /** In place of our nodes: nodes that stay when our session ends, and block everyone for the ttl. */
  async leave(
    { resources, paths, owner, token }: { resources: readonly string[]; owner: string } & Entry,
    ttlMs: number,
    withinMs: number,
  ): Promise<void> {
    const note = writeNote({ ttlMs, heldMs: 0, token })
    await this.#nodes.commit(withinMs, (transaction) => {
      for (const resource of resources) {
        transaction.create(`${this.folder(resource)}/${leftName(owner)}`, note, this.#acl, MODE.persistent)
      }
      for (const path of paths) transaction.remove(path)
    })
  }

  /** Removes folders that nobody is in: those of processes that died. Answers which. */
  async sweep(names: readonly string[], withinMs: number): Promise<readonly string[]> {
    const empty = await this.empty(names, withinMs)
    const removed = await Promise.all(empty.map((path) => this.#nodes.remove(path, withinMs)))
    return empty.filter((_, index) => removed[index])
  }

  /** The paths of those folders that nobody is in. */
  async empty(names: readonly string[], withinMs: number): Promise<readonly string[]> {
    const paths = names.map((name) => `${this.#root}/${name}`)
    const stats = await Promise.all(paths.map((path) => this.#nodes.stat(path, withinMs)))
    return paths.filter((_, index) => stats[index]?.numChildren === 0)
  }

  #create(transaction: Transaction, resource: string, folderToo: boolean, owner: string, note: Buffer): void {
    const folder = this.folder(resource)
    if (folderToo) transaction.create(folder, EMPTY, this.#acl, MODE.persistent)
    transaction.create(`${folder}/${placePrefix(owner)}`, note, this.#acl, MODE.ephemeralSequential)
  }

  #entered(paths: readonly string[], stat: Stat | null): Entry {
    if (stat === null) throw new Error('a node that was just made is gone')
    return { paths, token: numberOf(stat.czxid) }
  }

  async #tidy(resources: readonly string[], folders: readonly Folder[], withinMs: number): Promise<void> {
    const empty = resources.filter((_, index) => {
      const { exists, places, left } = folders[index]!
      return exists && places.length === 0 && left.length === 0
    })
    await Promise.all(empty.map((resource) => this.#nodes.remove(this.folder(resource), withinMs)))
  }
}
