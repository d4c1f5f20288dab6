/** The one source of the help, the man page, the completion and of what is accepted. */
export interface OptionSpec {
  readonly name: string
  readonly short?: string
  /** How its value is called; absent for a switch. */
  readonly value?: string
  readonly text: string
  /** For the completion. */
  readonly choices?: readonly string[]
}

export interface CommandSpec {
  readonly name: string
  readonly synopsis: readonly string[]
  readonly summary: string
  readonly text: readonly string[]
  readonly options: readonly OptionSpec[]
  readonly examples: readonly (readonly [command: string, what: string])[]
}

const ENGINE: readonly OptionSpec[] = [
  {
    name: 'engine',
    short: 'e',
    value: 'URL',
    text: 'where leases are kept (default: RINGFENCE_URL, then the config file, then a file of this machine); a password in it is visible to `ps`, so prefer RINGFENCE_URL or --engine-file',
  },
  { name: 'engine-file', value: 'FILE', text: 'read that URL from a file (RINGFENCE_URL_FILE does the same)' },
  {
    name: 'config',
    value: 'FILE',
    text: 'read this config file instead of ./ringfence.json and that of the user; a ./ringfence.json that belongs to someone else is obeyed only if it is named here',
  },
]

const OUTPUT: readonly OptionSpec[] = [
  { name: 'json', text: 'machine-readable output' },
  { name: 'quiet', short: 'q', text: 'print nothing that the exit code already says' },
  { name: 'help', short: 'h', text: 'show this help' },
]

const HOLD: readonly OptionSpec[] = [
  {
    name: 'ttl',
    value: 'TIME',
    text: 'how long the lease lasts without renewal; it is renewed while the command runs (default 30s, at least 2s)',
  },
  {
    name: 'grace',
    value: 'TIME',
    text: 'the time between TERM and KILL when the lease is lost; both come before its validity ends (default a sixth of the ttl, or of --max-hold where that is shorter; at most half of the ttl)',
  },
  {
    name: 'max-hold',
    value: 'TIME',
    text: 'the lease ends after this time, and the command before it: TERM comes --grace and a margin of 400 ms to 1 s earlier (default: never)',
  },
  { name: 'on-lost', value: 'CMD', text: 'run by /bin/sh when the lease was lost, after the command has been stopped' },
  {
    name: 'label',
    value: 'NAME',
    text: 'the name of this process for people who look at the locks (default host:pid)',
  },
  {
    name: 'tty',
    text: 'give the command the terminal although its input is not one (for a command that asks for a password on /dev/tty)',
  },
  { name: 'no-tty', text: 'never give the command the terminal' },
]

export const COMMANDS: readonly CommandSpec[] = [
  {
    name: 'run',
    synopsis: ['ringfence run [options] RESOURCE... -- COMMAND [ARG...]'],
    summary: 'hold a lease while a command runs',
    text: [
      'Waits for the lease, runs the command without a shell in a process group of its own, renews the lease while it runs, and releases it after. Several resources are locked together, all or none; a name that is given twice counts once.',
      "The exit code is the command's own, or 128+n if signal n ended it. INT, TERM, HUP, QUIT, USR1, USR2 and WINCH are passed on to the command; while it still waits they end the wait.",
      'When the lease is lost, the command gets TERM, and KILL after the grace, early enough that nothing of it is alive when validity ends; also when ringfence itself is stopped or killed meanwhile. A lease that was taken away (by `ringfence release`, or because its key was deleted) is noticed at the next renewal only.',
      'The command finds in its environment: RINGFENCE_RESOURCE (several: a line each), RINGFENCE_TOKEN, RINGFENCE_OWNER, RINGFENCE_ENGINE, RINGFENCE_DEADLINE_FILE. `ringfence held` in it exits 0 while the validity of the lease lasts by our own clock.',
      'Without --wait it waits forever for a holder, but not for an engine that cannot be reached at the start.',
    ],
    options: [
      { name: 'wait', value: 'TIME', text: 'wait at most this long (default: forever)' },
      { name: 'no-wait', short: 'n', text: 'do not wait: exit 193 when someone else holds it' },
      { name: 'once', text: 'for cron: exit 198 without running when it runs, or has just run, elsewhere' },
      {
        name: 'at-least',
        value: 'TIME',
        text: 'with --once: nobody runs it again for this long after it began, however soon it is done',
      },
      ...HOLD,
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [
      ['ringfence run backup -- pg_dump -f dump.sql app', 'one backup at a time on this machine'],
      ['ringfence run --no-wait report -- ./report.sh', 'exit 193 at once if it already runs'],
      ['ringfence run --once --at-least 50s tick -- ./tick.sh', 'from every machine’s cron, and one of them does it'],
      [
        'RINGFENCE_URL=redis://a,b,c ringfence run deploy -- ./deploy.sh',
        'across machines, on a quorum of three Redis',
      ],
    ],
  },
  {
    name: 'elect',
    synopsis: ['ringfence elect [options] NAME -- COMMAND [ARG...]'],
    summary: 'run a command while leader',
    text: [
      'Waits to be elected and runs the command. When the leadership is lost the command is stopped as by `run`, and ringfence campaigns again. When the command ends by itself while leader, ringfence steps down and exits with its code.',
      'While the engine cannot be reached it goes on campaigning, and says on stderr when that begins and when it is over.',
    ],
    options: [...HOLD, ...ENGINE, ...OUTPUT],
    examples: [['ringfence elect scheduler -- ./scheduler', 'one of many machines schedules']],
  },
  {
    name: 'held',
    synopsis: ['ringfence held'],
    summary: 'inside a command of run or elect: is the lease still held?',
    text: [
      'Exits 0 while the validity of the lease lasts by our own clock, and 1 otherwise. It compares the deadline in RINGFENCE_DEADLINE_FILE with the clock and asks no server, so it works while ringfence itself is stopped or dead. A lease that was taken away (by `ringfence release`, because its key was deleted or evicted) is noticed at the next renewal only: until then it exits 0.',
    ],
    options: OUTPUT,
    examples: [['ringfence held && mv report.tmp report', 'look once more before the step that counts']],
  },
  {
    name: 'status',
    synopsis: ['ringfence status [options] [RESOURCE]'],
    summary: 'who holds what',
    text: [
      'Shows the holder, the token, since when and for how long it is held, and how many processes wait, as far as the engine knows. With a RESOURCE it exits 0 if it is held and 1 if it is free.',
    ],
    options: [
      { name: 'watch', short: 'w', text: 'show it again whenever it changes, until interrupted' },
      { name: 'every', value: 'TIME', text: 'with --watch: how often to look (default 1s)' },
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [
      ['ringfence status', 'all leases of the engine'],
      ['ringfence status backup --watch --json', 'one line of JSON for each change'],
    ],
  },
  {
    name: 'release',
    synopsis: ['ringfence release --force [options] RESOURCE'],
    summary: "end someone else's lease",
    text: [
      "Says who holds it and asks before it does. If the resource is free, it says so and exits with 1. The holder's command is stopped when its next renewal fails, which may take a third of its ttl: until then two may work on the resource. A store that checks tokens is safe; others are not.",
    ],
    options: [
      { name: 'force', short: 'f', text: 'required: the lease is not yours' },
      { name: 'yes', short: 'y', text: 'do not ask' },
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [['ringfence release --force backup', 'after a machine was lost with a long ttl']],
  },
  {
    name: 'doctor',
    synopsis: ['ringfence doctor [options]'],
    summary: 'is the engine fit to hold locks?',
    text: [
      'Shows all findings with what they mean and what to do. Exits 0, or 1 if something is critical (with --strict: if there is a warning).',
    ],
    options: [
      { name: 'ttl', value: 'TIME', text: 'judge for leases of this ttl (default 30s)' },
      { name: 'strict', text: 'exit 1 for warnings too' },
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [['ringfence doctor --engine redis://a,b,c', 'before you rely on them']],
  },
  {
    name: 'dashboard',
    synopsis: ['ringfence dashboard [options]'],
    summary: 'a web page with all leases, live',
    text: [
      'Serves a page with every lease of the engine, its holder, time left and history, the servers and what the doctor says about them, until it is interrupted. Without a token it listens on this machine only, and every user of the machine can look; on any other address it refuses to start without one.',
      'A client that sends the write token may also release and extend leases. Each such act, each refused one and each failed login is a line of JSON on stderr. Tokens have 16 or more characters; a browser is asked for one, other programs send it as Authorization: Bearer.',
      'It speaks plain HTTP: if clients are on other machines, put a proxy with TLS in front of it.',
    ],
    options: [
      {
        name: 'listen',
        short: 'l',
        value: 'ADDRESS',
        text: 'PORT or HOST:PORT (default 127.0.0.1:7464); port 0 is any free port',
      },
      {
        name: 'token-file',
        value: 'FILE',
        text: 'ask every client for the token in this file, or for the write token (RINGFENCE_DASHBOARD_TOKEN holds a token itself)',
      },
      {
        name: 'write-token-file',
        value: 'FILE',
        text: 'a client that sends the token in this file may also release and extend leases (RINGFENCE_DASHBOARD_WRITE_TOKEN holds a token itself)',
      },
      {
        name: 'origin',
        value: 'URL',
        text: 'how browsers reach it, where a proxy does not pass on the Host header: https://ops.example.org',
      },
      { name: 'path', value: 'PATH', text: 'the path that a proxy passes on, such as /locks (default /)' },
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [
      ['ringfence dashboard', 'look at the locks of this machine at http://127.0.0.1:7464/'],
      [
        'ringfence dashboard --engine redis://a,b,c --listen 0.0.0.0:7464 --token-file readers --write-token-file admins',
        'for a team, behind a proxy with TLS',
      ],
    ],
  },
  {
    name: 'init',
    synopsis: ['ringfence init [options]'],
    summary: 'create what the engine needs on its servers',
    text: [
      'Creates tables, or stamps the nodes of a new quorum. Engines do it on first use as well; this does it ahead of time, with an account that has the permission. On a quorum it also starts the time for which nodes that may have forgotten leases sit out.',
    ],
    options: [...ENGINE, ...OUTPUT],
    examples: [['ringfence init --engine postgres://db/app', 'create the table']],
  },
  {
    name: 'advise',
    synopsis: ['ringfence advise [options]'],
    summary: 'which engine suits you, or whether you need a lock at all',
    text: [
      'Asks a few questions on the terminal, or takes the answers as options, and ends with a recommendation, its reason and a snippet.',
    ],
    options: [
      {
        name: 'protects',
        value: 'WHAT',
        text: 'what the lock protects: one-database, several-stores, a-job',
        choices: ['one-database', 'several-stores', 'a-job'],
      },
      {
        name: 'failure',
        value: 'COST',
        text: 'what it costs if two processes do it at once: waste, damage',
        choices: ['waste', 'damage'],
      },
      {
        name: 'checks',
        value: 'ANSWER',
        text: 'whether the store can check a token on each write: yes, no',
        choices: ['yes', 'no'],
      },
      { name: 'machines', value: 'N', text: 'where it runs: one, many', choices: ['one', 'many'] },
      {
        name: 'have',
        value: 'SERVER',
        text: 'what you already run: nothing, redis, postgres, mariadb, mongodb, etcd, consul, zookeeper',
        choices: ['nothing', 'redis', 'postgres', 'mariadb', 'mongodb', 'etcd', 'consul', 'zookeeper'],
      },
      {
        name: 'available',
        value: 'ANSWER',
        text: 'whether it must go on when one server is gone: yes, no',
        choices: ['yes', 'no'],
      },
      ...OUTPUT,
    ],
    examples: [
      ['ringfence advise', 'asks'],
      ['ringfence advise --protects a-job --failure waste --machines many --have redis --available no', 'does not ask'],
    ],
  },
  {
    name: 'bench',
    synopsis: ['ringfence bench [options]'],
    summary: 'how fast is your engine from here, and which ttl suits it',
    text: [
      'Acquires and releases a resource of its own, shows p50 and p99 of each, measures how the clock that ends leases runs against ours, and recommends a ttl from both.',
    ],
    options: [
      { name: 'count', value: 'N', text: 'how many leases to take (default 200)' },
      { name: 'for', value: 'TIME', text: 'how long to compare the clocks (default 3s)' },
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [['ringfence bench --engine redis://a,b,c', 'p50 and p99 from this machine']],
  },
  {
    name: 'completion',
    synopsis: ['ringfence completion bash|zsh|fish'],
    summary: 'print a completion script for your shell',
    text: [],
    options: [{ name: 'help', short: 'h', text: 'show this help' }],
    examples: [
      ['eval "$(ringfence completion bash)"', 'in ~/.bashrc'],
      ['ringfence completion fish > ~/.config/fish/completions/ringfence.fish', ''],
    ],
  },
]

export function commandNamed(name: string): CommandSpec | undefined {
  return COMMANDS.find((command) => command.name === name)
}

/** What every command understands through its environment. */
export const ENVIRONMENT: readonly (readonly [name: string, meaning: string])[] = [
  ['RINGFENCE_URL', 'the engine, as --engine'],
  ['RINGFENCE_URL_FILE', 'a file with that URL, as --engine-file'],
  ['RINGFENCE_CONFIG', 'a config file, as --config'],
  ['RINGFENCE_DASHBOARD_TOKEN', 'the token of dashboard, as in --token-file'],
  ['RINGFENCE_DASHBOARD_WRITE_TOKEN', 'its write token, as in --write-token-file'],
  ['NO_COLOR', 'no colours, if set and not empty'],
]

/** What the command of run and elect finds in its environment. */
export const CHILD_ENVIRONMENT: readonly (readonly [name: string, meaning: string])[] = [
  ['RINGFENCE_RESOURCE', 'the name; of several, a line each'],
  ['RINGFENCE_TOKEN', 'the fencing token: hand it to the store with every write'],
  ['RINGFENCE_OWNER', 'the unique id of this lease'],
  ['RINGFENCE_ENGINE', 'whose tokens these are; tokens of different engines cannot be compared'],
  ['RINGFENCE_DEADLINE_FILE', 'until when the lease is valid; `ringfence held` reads it'],
]

export const ENGINE_URLS: readonly (readonly [url: string, engine: string])[] = [
  [
    'file:/path/to/locks.db',
    'the embedded engine: several processes of one machine; the default, at a path of the user’s',
  ],
  ['redis://host:6379', 'one Redis or Valkey; rediss:// with TLS'],
  ['redis://a,b,c', 'a quorum of independent masters (Redlock), three or more'],
  ['postgres://user@host/database', 'PostgreSQL'],
  ['mariadb://user@host/database', 'MariaDB; mysql:// for MySQL, on which it was never run'],
  ['mongodb://host/database', 'MongoDB (also mongodb+srv://)'],
  ['etcd://host:2379', 'etcd; etcds:// with TLS; several hosts with commas'],
  ['consul://host:8500', 'Consul; consuls:// with TLS'],
  ['zookeeper://host:2181', 'ZooKeeper; several hosts with commas'],
]
