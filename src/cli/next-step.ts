import { QuorumError, type EngineError } from '../index.ts'

const SITS_OUT = /sits? out/

/** By what servers and drivers say, in the order in which they count. */
const STEPS: readonly (readonly [said: RegExp, next: string | ((error: EngineError) => string)])[] = [
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
  [
    /(permission|access|command) denied.*the table can be created by hand/is,
    'run `ringfence init` with the URL of a user that may create tables; this user needs only SELECT, INSERT and UPDATE on the table',
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
    /\bNOPERM\b.*prefix option missing/,
    'name the prefix that this user may use by ?prefix=… in the URL, or give it the right to more keys; `ringfence doctor` looks closer',
  ],
  [
    /\bNOPERM\b|(?<!EACCES: )permission denied|command denied to user|not authorized|HTTP 403/i,
    'give this user the rights that it lacks; `ringfence doctor` names them',
  ],
  [
    /\bREADONLY\b|is a replica|read[- ]only (replica|transaction)|--(super-)?read-only option/i,
    'this server is a replica, or takes no writes: name the master in the URL',
  ],
  [/\bMISCONF\b/, 'this Redis cannot save to its disk and refuses writes: free some space there, or see its log'],
  [
    /disk is full|no space left|\bENOSPC\b|\bEDQUOT\b/i,
    'free some space; leases that cannot be renewed end with their ttl',
  ],
  [/\bOOM\b/, 'the memory of the server is full: free some, or raise its maxmemory; `ringfence doctor` looks closer'],
  [SITS_OUT, whileSittingOut],
  [/\bLOADING\b/, 'the server still loads its data: try again soon, or wait for it with --wait TIME'],
  [/\b(ENOTFOUND|EAI_AGAIN)\b/, 'check the name of the host in the URL'],
  [/needs SQLite/, 'install it as said, or name an engine with a server: --engine URL'],
  [/cannot be opened for writing/, 'name a file that this user may write to: --engine file:/path/locks.db'],
  [/certificate/i, 'name the authority that signed it by ?ca=FILE in the URL'],
]

/** What to do about an engine that cannot be used. `option`: what another command needs for the same engine, with a blank before it. */
export function nextStep(error: EngineError, option = '', reason = error.message): string {
  return step(error, reason).replaceAll('`ringfence doctor`', () => `\`ringfence doctor${option}\``)
}

function step(error: EngineError, reason: string): string {
  const [, next] = STEPS.find(([said]) => said.test(reason)) ?? []
  if (next !== undefined) return typeof next === 'string' ? next : next(error)
  return error.transient
    ? 'is the server up, and the URL right? `ringfence doctor` looks closer'
    : '`ringfence doctor` looks closer; --engine URL names another engine'
}

/** Waiting is worth it where enough of the others vote. The error may come before all nodes that are down are known. */
function whileSittingOut(error: EngineError): string {
  const { nodes, quorum, size } = error instanceof QuorumError ? error : { nodes: [], quorum: 1, size: 1 }
  const down = nodes.filter(({ cause }) => !SITS_OUT.test(cause.message)).map(({ node }) => node)
  if (down.length === 0) return 'wait until these nodes may vote again; `ringfence doctor` looks closer'
  const orWait = size - down.length < quorum ? '' : ', or wait until those that sit out may vote again'
  return `bring ${down.join(', ')} back${orWait}; \`ringfence doctor\` looks closer`
}
