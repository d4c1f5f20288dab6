/** The decision framework: what is protected, what a failure costs, where it runs, what is already there. */
export interface Answers {
  readonly protects: 'one-database' | 'several-stores' | 'a-job'
  readonly failure: 'waste' | 'damage'
  readonly checks: 'yes' | 'no'
  readonly machines: 'one' | 'many'
  readonly have: 'nothing' | 'redis' | 'postgres' | 'mariadb' | 'mongodb' | 'etcd' | 'consul' | 'zookeeper'
  readonly available: 'yes' | 'no'
}

export interface Question {
  readonly name: keyof Answers
  readonly text: string
  readonly choices: readonly (readonly [choice: string, meaning: string])[]
  /** Whether the answer can still change the advice. */
  readonly matters: (answers: Partial<Answers>) => boolean
}

export interface Advice {
  /** 'none' where a lock is the wrong tool. */
  readonly engine: string
  readonly recommendation: string
  readonly reasons: readonly string[]
  readonly snippet: readonly string[]
}

const isOneTransaction = ({ protects, failure }: Partial<Answers>): boolean =>
  protects === 'one-database' && failure === 'damage'

export const QUESTIONS: readonly Question[] = [
  {
    name: 'protects',
    text: 'What does the lock protect?',
    choices: [
      ['one-database', 'data that is all in one database'],
      ['several-stores', 'several stores or services, an API, files'],
      ['a-job', 'a job that should not run twice at the same time'],
    ],
    matters: () => true,
  },
  {
    name: 'failure',
    text: 'What if, very rarely, two do it at once?',
    choices: [
      ['waste', 'work is done twice: annoying, not dangerous'],
      ['damage', 'money, stock or data is wrong afterwards'],
    ],
    matters: () => true,
  },
  {
    name: 'checks',
    text: 'Can the store that is written to compare a number with the highest it has seen, on every write?',
    choices: [
      ['yes', 'yes: a database, an API of ours, an object store with conditional writes'],
      ['no', 'no'],
    ],
    matters: (answers) => answers.failure === 'damage' && !isOneTransaction(answers),
  },
  {
    name: 'machines',
    text: 'Where does it run?',
    choices: [
      ['one', 'on one machine'],
      ['many', 'on several machines or containers'],
    ],
    matters: (answers) => !isOneTransaction(answers),
  },
  {
    name: 'have',
    text: 'What do you run already?',
    choices: [
      ['nothing', 'none of these'],
      ['redis', 'Redis or Valkey'],
      ['postgres', 'PostgreSQL'],
      ['mariadb', 'MariaDB or MySQL'],
      ['mongodb', 'MongoDB'],
      ['etcd', 'etcd, a cluster of your own (not the one of a Kubernetes control plane)'],
      ['consul', 'Consul'],
      ['zookeeper', 'ZooKeeper'],
    ],
    matters: (answers) => answers.machines === 'many' || isOneTransaction(answers),
  },
  {
    name: 'available',
    text: 'Must locks go on when one server is gone?',
    choices: [
      ['yes', 'yes'],
      ['no', 'no: a pause until it is back will do'],
    ],
    matters: (answers) => answers.machines === 'many' && (answers.have === 'redis' || answers.have === 'nothing'),
  },
]

const URLS: Record<string, string> = {
  redis: 'redis://host:6379',
  redlock: 'redis://a,b,c,d,e',
  postgres: 'postgres://user@host/app',
  mariadb: 'mariadb://user@host/app',
  mongodb: 'mongodb://host/app',
  etcd: 'etcd://a:2379,b:2379,c:2379',
  consul: 'consul://host:8500',
  zookeeper: 'zookeeper://a,b,c',
}

/** The engines whose servers agree among themselves, so that a lease outlives the loss of one of them. */
const CONSENSUS = ['etcd', 'consul', 'zookeeper']

const FENCE =
  'Check the token at the store: a holder that was paused for longer than its lease would otherwise write late. Nothing that a lock does can stop it; a store that refuses lower tokens can.'
const NO_FENCE =
  'Without a store that checks tokens no lock makes this safe, whichever engine: make the work idempotent, or put a conditional write (a unique key, a version column, If-Match) where it counts.'

export function adviceFor(answers: Answers): Advice {
  const { failure, checks, machines } = answers
  if (isOneTransaction(answers)) return transaction(answers)
  const { engine, why } = machines === 'one' ? ONE_MACHINE : engineFor(answers)
  const reasons = [why]
  if (failure === 'damage') reasons.push(checks === 'yes' ? FENCE : NO_FENCE)
  else reasons.push('Twice is only a waste here, so the lease alone will do; the token is there when that changes.')
  return {
    engine,
    recommendation: `Use ${NAMES[engine] ?? engine}${failure === 'damage' && checks === 'yes' ? ', and check its tokens at the store' : ''}.`,
    reasons,
    snippet: snippet(answers, engine),
  }
}

const OWN_ETCD = 'Keep locks out of the etcd of a Kubernetes control plane: the whole cluster depends on it.'

const NAMES: Record<string, string> = {
  file: 'the embedded file engine',
  redis: 'one Redis',
  redlock: 'a quorum of five independent Redis masters (Redlock)',
  postgres: 'PostgreSQL',
  mariadb: 'MariaDB (of MySQL, 9 was run)',
  mongodb: 'MongoDB',
  consul: 'Consul',
  zookeeper: 'ZooKeeper',
}

interface Choice {
  readonly engine: string
  readonly why: string
}

const ONE_MACHINE: Choice = {
  engine: 'file',
  why: 'One machine needs no server: a file excludes all processes on it. On Node 20 it needs the package libsql; Node 22.13 and later bring SQLite.',
}

function engineFor({ have, failure, available }: Answers): Choice {
  if (CONSENSUS.includes(have))
    return {
      engine: have,
      why: `Its servers agree by consensus, so a lease outlives the loss of a minority of them; and you run it already.${have === 'etcd' ? ` ${OWN_ETCD}` : ''}`,
    }
  if (have === 'redis' && available === 'no' && failure === 'waste')
    return {
      engine: 'redis',
      why: 'You run it already, it is quick, and a rare second holder after a crash or failover is bearable.',
    }
  if (have === 'redis' && failure === 'waste')
    return {
      engine: 'redlock',
      why: 'A majority of independent masters goes on when one is gone. Replicas of one master would not do: a failover forgets the last leases.',
    }
  if (have === 'redis')
    return {
      engine: 'redlock',
      why: 'One Redis forgets leases when it fails over; a quorum of independent masters keeps them while a majority of its nodes does. When nodes lose their data, the growth of its tokens rests on the clocks (docs/guarantees.md). A system built on consensus (etcd, ZooKeeper, Consul) rests on fewer assumptions, if you are ready to run one.',
    }
  if (have !== 'nothing')
    return {
      engine: have,
      why: 'You run it already: one system less to fail. Its leases are as available as the database is, with its own failover.',
    }
  if (failure === 'waste' && available === 'no') return { engine: 'redis', why: 'The least to run: one small server.' }
  return {
    engine: 'etcd',
    why: `Three servers that agree by consensus and do nothing else: that rests on the fewest assumptions. ${OWN_ETCD}`,
  }
}

/** All data in one database, and it must be right: the database's own means are enough, and stronger. */
function transaction({ have }: Answers): Advice {
  const statement =
    have === 'mongodb'
      ? [
          "db.orders.updateOne({ _id: 42, status: 'NEW' }, { $set: { status: 'TAKEN' } })",
          '// modifiedCount 1: it was us; 0: somebody was faster',
        ]
      : ['BEGIN;', 'SELECT * FROM orders WHERE id = 42 FOR UPDATE;', '-- the work', 'COMMIT;']
  return {
    engine: 'none',
    recommendation: 'You need no distributed lock: let the database decide.',
    reasons: [
      'All of the data is in one database. A transaction, a unique key or a conditional update there is checked together with the write, so it cannot be late.',
      'A lock before it can still save work when many try at once; it must not be what keeps the data right.',
    ],
    snippet: statement,
  }
}

function snippet({ protects, failure, checks }: Answers, engine: string): string[] {
  const url = URLS[engine]
  const where = url === undefined ? '' : `RINGFENCE_URL=${url} `
  const command =
    protects === 'a-job'
      ? `${where}ringfence run --once --at-least 50s job -- ./job.sh`
      : `${where}ringfence run order:42 -- ./work.sh`
  const from = engine === 'redlock' ? 'redis' : engine
  const argument = { file: '', redis: 'client', redlock: '[a, b, c, d, e]' }[engine] ?? '/* see docs */'
  return [
    command,
    '',
    "import { createLocks } from 'ringfence'",
    `import { ${engine} } from 'ringfence/${from}'`,
    `const locks = createLocks(${engine}(${argument}))`,
    protects === 'a-job'
      ? "await locks.once('job', { atLeast: '50s' }, (lease) => work(lease.signal))"
      : `await locks.using('order:42', (lease) => work({ signal: lease.signal${failure === 'damage' && checks === 'yes' ? ', token: lease.token' : ''} }))`,
  ]
}
