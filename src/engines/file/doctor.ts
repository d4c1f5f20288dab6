import { statfsSync, statSync, watch } from 'node:fs'
import { dirname } from 'node:path'
import type { MachineClock } from '../../clock.ts'
import type { Finding } from '../../engine.ts'
import { findings, sentence } from '../shared/findings.ts'
import type { Database } from './database.ts'
import { fileError } from './errors.ts'
import type { Machine } from './machine.ts'

export interface FileCheck {
  readonly path: string
  readonly ttlMs: number
  readonly clock: MachineClock
  readonly machine: () => Machine
  /** Opens the file and writes to it. Rejects if either is not possible. */
  open(): Promise<Database>
  /** One write, down to the disk. */
  writeToDisk(): Promise<void>
}

const { ok, note, warning, critical } = findings('file')

/** The doctor: is this file, at this path, fit to hold locks of this ttl? */
export async function checkFile(check: FileCheck): Promise<readonly Finding[]> {
  const { path, machine } = check
  try {
    const database = await check.open()
    const whole = integrity(database)
    return [
      ok('open', `${path} can be read and written, by ${database.library}.`, 'Leases can be granted.'),
      whole,
      fileSystem(statfsSync(path).type),
      space(freeBytes(path)),
      permissions(path),
      processes(machine()),
      bootOf(machine()),
      wakeUps(database.logPath),
      // Writing to a damaged file could only make it worse.
      ...(whole.severity === 'ok' ? [await speed(check)] : []),
    ]
  } catch (error) {
    const { message } = fileError(error, path)
    const found = sentence(`The file cannot be used: ${message}`)
    const remedy = message.includes('the disk is full')
      ? 'Free some space. Leases that cannot be renewed end with their ttl.'
      : 'Do what the message says, and check again.'
    return [critical('open', found, 'No lease can be granted or renewed.', remedy)]
  }
}

function integrity(database: Database): Finding {
  const wrong = database.damage()
  if (wrong.length === 0) return ok('integrity', 'The file is not damaged.', 'What it says can be relied on.')
  return critical(
    'integrity',
    sentence(`The file is damaged: ${wrong.join('; ')}`),
    'Leases and tokens in it may be wrong.',
    `When no process uses it, move ${database.path} and its -wal and -shm away; tokens go on from the wall clock.`,
  )
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
  const id = 'file-system'
  // Some are reported as negative 32-bit numbers.
  const shared = SHARED_FILE_SYSTEMS.get(type >>> 0)
  if (shared !== undefined) {
    return critical(
      id,
      `The file is on ${shared}.`,
      'Its processes may be on different machines, with different clocks and no memory in common: two holders at once.',
      'Put the file on a local disk. For several machines use an engine with a server.',
    )
  }
  const memory = FILE_SYSTEMS_IN_MEMORY.get(type >>> 0)
  if (memory !== undefined) {
    return note(
      id,
      `The file is on ${memory}.`,
      'It is gone after a reboot. Tokens then go on from the wall clock, so they rely on it not being set back.',
    )
  }
  if (type >>> 0 === OVERLAY) {
    return warning(
      id,
      'The file is in the layers of a container.',
      'Processes in other containers and outside have another file, and it is gone with the container.',
      'Put the file on a volume that all of them share.',
    )
  }
  return ok(id, 'The file is on a local file system.', 'Its processes share one machine.')
}

function freeBytes(path: string): number {
  const { bavail, bsize } = statfsSync(path)
  return bavail * bsize
}

/** Several times what the log needs, which grows to 4 MB. The file itself stays much smaller. */
const ENOUGH_BYTES = 32 * 1024 * 1024

export function space(bytes: number): Finding {
  const found = `${Math.floor(bytes / 1024 / 1024)} MB are free.`
  if (bytes >= ENOUGH_BYTES) return ok('space', found, 'The file can grow as much as it needs to.')
  return warning(
    'space',
    found,
    'On a full disk leases can be neither granted nor renewed nor released: they end with their ttl.',
    'Free some space.',
  )
}

function permissions(path: string): Finding {
  const id = 'permissions'
  const folder = dirname(path)
  // A user who may write to the folder may replace the file, unless the sticky bit forbids it.
  const folderMode = statSync(folder).mode
  const open = [
    ...((statSync(path).mode & 0o022) !== 0 ? [path] : []),
    ...((folderMode & 0o022) !== 0 && (folderMode & 0o1000) === 0 ? [folder] : []),
  ]
  if (open.length === 0) return ok(id, 'Only its owner can write to the file.', 'Nobody else can end leases.')
  return warning(
    id,
    `Other users can write to ${open.join(' and ')}.`,
    'They can end or forge any lease, or replace the file. That is fine if they are meant to share the locks.',
    `Run \`chmod go-w ${open.join(' ')}\`.`,
  )
}

function processes({ self }: Machine): Finding {
  const id = 'processes'
  if (self !== null) return ok(id, 'Processes can be looked up.', 'A holder that died is noticed at once.')
  return note(
    id,
    'Processes cannot be looked up: /proc is missing, or belongs to another pid namespace.',
    'The lease of a process that died ends with its ttl.',
    'Mount /proc in the container.',
  )
}

function bootOf({ boot }: Machine): Finding {
  const id = 'boot'
  if (boot !== '') return ok(id, 'The boot of the machine is known.', 'A reboot ends all leases at once.')
  return note(
    id,
    'The boot of the machine is not known: the container hides its id.',
    'After a reboot a lease may seem to last until its ttl is over.',
  )
}

function wakeUps(logPath: string): Finding {
  const id = 'wake-ups'
  try {
    watch(logPath).close()
    return ok(id, 'Changes of the file can be watched.', 'A release wakes the waiters.')
  } catch (error) {
    return note(
      id,
      sentence(`Changes of the file cannot be watched: ${(error as Error).message}`),
      'Waiters notice a release up to 25 ms later.',
      'Raise fs.inotify.max_user_instances and fs.inotify.max_user_watches.',
    )
  }
}

/** A renewal that takes longer than this part of the ttl leaves too little time for another try. */
const SLOW_PART = 1 / 20

async function speed(check: FileCheck): Promise<Finding> {
  const { ttlMs, clock } = check
  const beganMs = clock.monotonicMs()
  await check.writeToDisk()
  const tookMs = clock.monotonicMs() - beganMs
  const found = `A write to the disk took ${tookMs.toFixed(1)} ms.`
  if (tookMs <= ttlMs * SLOW_PART) return ok('speed', found, `That is fast enough for a ttl of ${ttlMs} ms.`)
  return warning(
    'speed',
    found,
    `That is too slow for a ttl of ${ttlMs} ms: renewals may come too late, and each write blocks this process.`,
    'Use a longer ttl or a faster disk.',
  )
}
