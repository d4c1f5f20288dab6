import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { progress } from './run.mjs'

/**
 * Runs the work while no other run of the script works in the folder. A dead run's lock is taken over, and two runs
 * that take it over in the same instant may both go on. That costs a second download and nothing else, because every
 * server and the manifest appear by a rename.
 */
export async function withLock(folder, work) {
  const lock = path.join(folder, '.lock')
  let told = false
  while (!tryLock(lock)) {
    if (!told) progress('another run is fetching servers: waiting for it')
    told = true
    await pause(200)
  }
  try {
    return await work()
  } finally {
    rmSync(lock, { recursive: true, force: true })
  }
}

function tryLock(lock) {
  // The folder appears with its owner inside, by a rename: a lock without an owner would look like a dead run's.
  const mine = `${lock}-${process.pid}`
  rmSync(mine, { recursive: true, force: true })
  mkdirSync(mine)
  writeFileSync(path.join(mine, 'pid'), String(process.pid))
  try {
    renameSync(mine, lock)
    return true
  } catch {
    rmSync(mine, { recursive: true, force: true })
    if (isAlive(ownerOf(lock))) return false
    discard(lock)
    return tryLock(lock)
  }
}

function ownerOf(lock) {
  try {
    return Number(readFileSync(path.join(lock, 'pid'), 'utf8'))
  } catch {
    return undefined
  }
}

function isAlive(pid) {
  // Released between our rename and our look: as good as alive, the next try decides.
  if (pid === undefined) return true
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error.code === 'EPERM'
  }
}

function discard(lock) {
  const away = `${lock}-dead-${process.pid}`
  try {
    renameSync(lock, away)
    rmSync(away, { recursive: true, force: true })
  } catch {
    // Another waiter was faster.
  }
}
