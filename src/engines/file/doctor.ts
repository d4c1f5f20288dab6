import { statfsSync, statSync, watch } from 'node:fs'
import { dirname } from 'node:path'
import type { MachineClock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'
import type { Database } from './database.ts'
import { explained } from './failures.ts'
import type { Machine } from './machine.ts'

export interface Patient {
  readonly path: string
  readonly ttlMs: number
  readonly clock: MachineClock
  readonly machine: () => Machine
  /** Opens the file and writes to it; rejects with what keeps from it. */
  open(): Promise<Database>
  /** One write, down to the disk. */
  writeToDisk(): Promise<void>
}

/** Is this file, where it is, fit to hold locks of such a ttl? */
export async function examine(patient: Patient): Promise<readonly Finding[]> {
  const { path, machine } = patient
  try {
    const database = await patient.open()
    const whole = integrity(database)
    return [
      {
        id: 'file/open',
        severity: 'ok',
        found: `${path} can be read and written, by ${database.library}`,
        meaning: 'leases can be granted',
      },
      whole,
      fileSystem(statfsSync(path).type),
      space(freeBytes(path)),
      permissions(path),
      processes(machine()),
      bootOf(machine()),
      wakeUps(database.logPath),
      // Writing to a damaged file could only make it worse.
      ...(whole.severity === 'ok' ? [await speed(patient)] : []),
    ]
  } catch (error) {
    const { message } = explained(error, path)
    return [
      {
        id: 'file/open',
        severity: 'critical',
        found: message,
        meaning: 'no lease can be granted or renewed',
        remedy: 'do what the message says, and check again',
      },
    ]
  }
}

function integrity(database: Database): Finding {
  const wrong = database.damage()
  if (wrong.length === 0) {
    return {
      id: 'file/integrity',
      severity: 'ok',
      found: 'the file is whole',
      meaning: 'what it says can be relied on',
    }
  }
  return {
    id: 'file/integrity',
    severity: 'critical',
    found: `the file is damaged: ${wrong.join('; ')}`,
    meaning: 'leases and tokens in it may be wrong',
    remedy: `when no process uses it, move ${database.path} and its -wal and -shm away; tokens go on from the clock`,
  }
}

/** By the numbers of statfs(2). */
const SHARED_FILE_SYSTEMS = new Map([
  [0x6969, 'NFS'],
  [0xff534d42, 'CIFS'],
  [0xfe534d42, 'SMB2'],
  [0x517b, 'SMB'],
  [0x01021997, '9p'],
  [0x65735546, 'FUSE'],
  [0x00c36400, 'Ceph'],
  [0x5346414f, 'AFS'],
  [0x01161970, 'GFS2'],
  [0x7461636f, 'OCFS2'],
  [0x0bd00bd0, 'Lustre'],
  [0x47504653, 'GPFS'],
  [0x786f4256, 'vboxsf'],
])
const FILE_SYSTEMS_IN_MEMORY = new Map([
  [0x01021994, 'tmpfs'],
  [0x858458f6, 'ramfs'],
])
const OVERLAY = 0x794c7630

export function fileSystem(type: number): Finding {
  const id = 'file/file-system'
  // Some are reported as negative 32-bit numbers.
  const shared = SHARED_FILE_SYSTEMS.get(type >>> 0)
  if (shared !== undefined) {
    return {
      id,
      severity: 'critical',
      found: `the file is on ${shared}`,
      meaning:
        'its processes may be on different machines, with different clocks and no memory in common: two holders at once',
      remedy: 'put the file on a local disk; for several machines use an engine with a server',
    }
  }
  const memory = FILE_SYSTEMS_IN_MEMORY.get(type >>> 0)
  if (memory !== undefined) {
    return {
      id,
      severity: 'note',
      found: `the file is on ${memory}`,
      meaning:
        'it is gone after a reboot; tokens then go on from the wall clock, so they rely on it not being set back',
    }
  }
  if (type >>> 0 === OVERLAY) {
    return {
      id,
      severity: 'warning',
      found: 'the file is in the layers of a container',
      meaning: 'processes in other containers and outside have another file, and it is gone with the container',
      remedy: 'put the file on a volume that all of them share',
    }
  }
  return { id, severity: 'ok', found: 'the file is on a local file system', meaning: 'its processes share one machine' }
}

function freeBytes(path: string): number {
  const { bavail, bsize } = statfsSync(path)
  return bavail * bsize
}

/** The log grows to 4 MB, the file itself stays far smaller; several times that. */
const ENOUGH_BYTES = 32 * 1024 * 1024

export function space(bytes: number): Finding {
  const found = `${Math.floor(bytes / 1024 / 1024)} MB are free`
  if (bytes >= ENOUGH_BYTES) {
    return { id: 'file/space', severity: 'ok', found, meaning: 'the file can grow as much as it needs to' }
  }
  return {
    id: 'file/space',
    severity: 'warning',
    found,
    meaning: 'on a full disk leases can be neither granted nor renewed nor released: they end with their ttl',
    remedy: 'free some space',
  }
}

function permissions(path: string): Finding {
  const id = 'file/permissions'
  const folder = dirname(path)
  // Whoever may write to the folder may put another file in place, unless the sticky bit forbids it.
  const folderMode = statSync(folder).mode
  const open = [
    ...((statSync(path).mode & 0o022) !== 0 ? [path] : []),
    ...((folderMode & 0o022) !== 0 && (folderMode & 0o1000) === 0 ? [folder] : []),
  ]
  if (open.length === 0) {
    return { id, severity: 'ok', found: 'only its owner can write to the file', meaning: 'nobody else can end leases' }
  }
  return {
    id,
    severity: 'warning',
    found: `other users can write to ${open.join(' and ')}`,
    meaning: 'they can end or forge any lease, or put another file in place; fine if they are meant to share the locks',
    remedy: `chmod go-w ${open.join(' ')}`,
  }
}

function processes({ self }: Machine): Finding {
  const id = 'file/processes'
  if (self !== null) {
    return { id, severity: 'ok', found: 'processes can be looked up', meaning: 'a holder that died is noticed at once' }
  }
  return {
    id,
    severity: 'note',
    found: "processes can't be looked up: /proc is missing or not of this pid namespace",
    meaning: 'a lease of a process that died ends with its ttl',
    remedy: 'mount /proc in the container',
  }
}

function bootOf({ boot }: Machine): Finding {
  const id = 'file/boot'
  if (boot !== '') {
    return {
      id,
      severity: 'ok',
      found: 'the boot of the machine is known',
      meaning: 'a reboot ends all leases at once',
    }
  }
  return {
    id,
    severity: 'note',
    found: 'the boot of the machine is not known: the container hides its id',
    meaning: 'after a reboot a lease may seem to last until its ttl is over',
  }
}

function wakeUps(logPath: string): Finding {
  const id = 'file/wake-ups'
  try {
    watch(logPath).close()
    return {
      id,
      severity: 'ok',
      found: 'changes of the file can be watched',
      meaning: 'waiters are woken by a release',
    }
  } catch (error) {
    return {
      id,
      severity: 'note',
      found: `changes of the file can't be watched: ${(error as Error).message}`,
      meaning: 'waiters notice a release up to 25 ms later',
      remedy: 'raise fs.inotify.max_user_instances and fs.inotify.max_user_watches',
    }
  }
}

/** A renewal that takes longer than this part of the ttl leaves too little time to try again. */
const SLOW_PART = 1 / 20

async function speed(patient: Patient): Promise<Finding> {
  const { ttlMs, clock } = patient
  const beganMs = clock.monotonicMs()
  await patient.writeToDisk()
  const tookMs = clock.monotonicMs() - beganMs
  const found = `a write to the disk takes ${tookMs.toFixed(1)} ms`
  if (tookMs <= ttlMs * SLOW_PART) {
    return { id: 'file/speed', severity: 'ok', found, meaning: `fast enough for a ttl of ${ttlMs} ms` }
  }
  return {
    id: 'file/speed',
    severity: 'warning',
    found,
    meaning: `too slow for a ttl of ${ttlMs} ms: renewals may come too late, and this process stands still meanwhile`,
    remedy: 'use a longer ttl or a faster disk',
  }
}
