import type { EngineError } from '../index.ts'

/** By what servers and drivers say, in the order in which they count. */
const STEPS: readonly (readonly [said: RegExp, next: string])[] = [
  [
    /sentinels are unreachable.*\b(WRONGPASS|NOAUTH)\b/,
    'sentinels have a login of their own: check sentinelUsername and sentinelPassword in the URL',
  ],
  [
    /sentinels are unreachable.*unknown command/,
    'these servers are no sentinels: name the sentinels, or write redis:// for a server and redis+cluster:// for a Cluster',
  ],
  [
    /sentinels are unreachable(?!.*Last error)|No such master with that name/,
    'the sentinels know no master of this name: SENTINEL MASTERS on one of them lists those that they know',
  ],
  [/\bMOVED \d/, 'this server is a node of a Redis Cluster: write redis+cluster:// in the URL'],
  [
    /cluster support disabled/,
    'this server is not a node of a Cluster: write redis:// for a server, redis+sentinel://…/MASTER for sentinels',
  ],
  [
    /\b(WRONGPASS|NOAUTH|28P01|28000)\b|invalid (username|password)|password authentication failed|role ".*" does not exist|access denied for user|authentication failed|ACL not found|HTTP 401/i,
    'check the user and the password in the URL',
  ],
  [
    /\bNOPERM\b|(?<!EACCES: )permission denied|command denied to user|not authorized|HTTP 403/i,
    'give this user the rights that it lacks; `ringfence doctor` names them',
  ],
  [
    /\bREADONLY\b|read[- ]only (replica|transaction)|--(super-)?read-only option/i,
    'this server is a replica, or takes no writes: name the master in the URL',
  ],
  [/\bMISCONF\b/, 'this Redis can’t save to its disk and refuses writes: free some space there, or see its log'],
  [
    /disk is full|no space left|\bENOSPC\b|\bEDQUOT\b/i,
    'free some space; leases that can’t be renewed end with their ttl',
  ],
  [/\bOOM\b/, 'the memory of the server is full: free some, or raise its maxmemory; `ringfence doctor` looks closer'],
  [/sits? out/, 'wait until these nodes may vote again; `ringfence doctor` looks closer'],
  [/\bLOADING\b/, 'the server still loads its data: try again soon, or wait for it with --wait TIME'],
  [/\b(ENOTFOUND|EAI_AGAIN)\b/, 'check the name of the host in the URL'],
  [/needs SQLite/, 'install it as said, or name an engine with a server: --engine URL'],
  [/cannot be opened for writing/, 'name a file that this user may write to: --engine file:/path/locks.db'],
  [/certificate/i, 'name the authority that signed it by ?ca=FILE in the URL'],
]

/** What to do about an engine that can't be used. */
export function nextStep({ message, transient }: Pick<EngineError, 'message' | 'transient'>): string {
  const fitting = STEPS.find(([said]) => said.test(message))
  if (fitting !== undefined) return fitting[1]
  return transient
    ? 'is the server up, and the URL right? `ringfence doctor` looks closer'
    : '`ringfence doctor` looks closer; --engine URL names another engine'
}
