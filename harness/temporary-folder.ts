import { chownSync, lchownSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { isGone } from './process-tree.ts'

/** nobody: PostgreSQL refuses root, and the other servers need no more. */
const nobody = 65_534

const live = new Set<string>()

process.on('exit', () => {
  for (const folder of live) rmSync(folder, { recursive: true, force: true })
})

/** The user that servers run as: nobody when the tests run as root, otherwise the user who runs them. */
export function serverUser(): { uid?: number; gid?: number } {
  return process.getuid?.() === 0 ? { uid: nobody, gid: nobody } : {}
}

/** Of one server alone, so that the network can tell whose packets are whose: where RINGFENCE_OWN_USERS asks for it. */
export function ownUser(): number | undefined {
  return process.env['RINGFENCE_OWN_USERS'] === 'yes' ? FIRST_OWN_USER + (ownUsers++ % OWN_USERS) : undefined
}

export const FIRST_OWN_USER = 61_000
/** No process has had this many servers at a time. */
export const OWN_USERS = 1000
let ownUsers = 0

/** Gives a folder and all that is in it to a user. */
export function giveAll(folder: string, user: number): void {
  chownSync(folder, user, user)
  for (const name of readdirSync(folder, { recursive: true })) lchownSync(path.join(folder, String(name)), user, user)
}

/** A new empty folder that the server's user may write into. */
export function createFolder(name: string): string {
  if (live.size === 0) removeRemains()
  const folder = mkdtempSync(path.join(tmpdir(), `ringfence-${name}-${process.pid}-`))
  live.add(folder)
  giveToServer(folder)
  return folder
}

/** Makes a folder, or makes it new. */
export function emptyFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder)
  giveToServer(folder)
}

export function giveToServer(file: string): void {
  const { uid, gid } = serverUser()
  if (uid !== undefined && gid !== undefined) chownSync(file, uid, gid)
}

export function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
  live.delete(folder)
}

/** A test run that was killed could not clean up. Its servers died with it (they are tethered); its folders stay. */
function removeRemains(): void {
  for (const name of readdirSync(tmpdir())) {
    const owner = /^ringfence-\w+-(\d+)-\w{6}$/.exec(name)?.[1]
    if (owner !== undefined && isGone(Number(owner))) removeFolder(path.join(tmpdir(), name))
  }
}
