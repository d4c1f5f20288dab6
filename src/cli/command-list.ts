/** The one source of the help, the man page, the completion and of what is accepted. */
export interface OptionSpec {
  /** As the help shows it: `-e, --engine URL`. */
  readonly flag: string
  readonly name: string
  readonly short: string | undefined
  /** How its value is called; undefined for a switch. */
  readonly value: string | undefined
  readonly text: string
  /** For the completion. */
  readonly choices?: readonly string[]
  /** It may be given several times. */
  readonly isMultiple?: true
}

export interface CommandSpec {
  readonly name: string
  readonly synopsis: string
  readonly summary: string
  readonly text: readonly string[]
  readonly options: readonly OptionSpec[]
  readonly examples: readonly (readonly [command: string, what: string])[]
}

/** From flags to what they do. */
function options(table: Readonly<Record<string, string>>): OptionSpec[] {
  return Object.entries(table).map(([flag, text]) => {
    const [, short, name, value] = /^(?:-(\w), )?--([\w-]+)(?: (\w+))?$/.exec(flag)!
    return { flag, name: name!, short, value, text }
  })
}

function choice(flag: string, text: string, choices: readonly string[]): OptionSpec {
  const [option] = options({ [flag]: `${text}: ${choices.join(', ')}` })
  return { ...option!, choices }
}

const ENGINE = options({
  '-e, --engine URL':
    'where leases are kept (default: RINGFENCE_URL, then the config file, then a file of this machine); a password in it is visible to `ps`, so prefer RINGFENCE_URL or --engine-file',
  '--engine-file FILE': 'read that URL from a file (RINGFENCE_URL_FILE does the same)',
  '--config FILE':
    'read this config file instead of ./ringfence.json, that of the user and /etc/ringfence/config.json; a file that belongs to someone else, or that others may write to, is obeyed only if it is named here',
  '--verbose':
    'say on stderr which config files were read and where each setting came from; doctor also shows what is in order',
})

/** For a command that takes several engines. */
const ENGINES = ENGINE.map((option) => (option.name === 'engine' ? { ...option, isMultiple: true as const } : option))

const STORE = options({
  '--store URL':
    'a database or Redis that keeps a history of the runs of jobs (default: RINGFENCE_STORE, then the config file)',
})

const CONFIG = ENGINE.filter(({ name }) => name === 'config' || name === 'verbose')

const OUTPUT = options({
  '--json': 'machine-readable output',
  '-q, --quiet': 'print nothing that the exit code already says',
  '-h, --help': 'show this help',
})

const HOLD = [
  ...options({
    '-c, --command LINE': 'run this line by /bin/sh -c, instead of -- and a command',
    '--ttl TIME':
      'how long the lease lasts without renewal; it is renewed while the command runs (default 30s, at least 2s)',
    '--grace TIME':
      'the time between TERM and KILL when the lease is lost; both come before its validity ends (default a sixth of the ttl, or of --max-hold where that is shorter; at most half of the ttl)',
    '--max-hold TIME':
      'the lease ends after this time, and the command before it: TERM comes --grace and a margin of 400 ms to 1 s earlier (default: never)',
  }),
  choice(
    '--on-doubt WHAT',
    'when a renewal fails, let the command go on while the lease is valid (the default), or stop it at once',
    ['keep', 'stop'],
  ),
  ...options({
    '--on-lost CMD': 'run by /bin/sh when the lease was lost, after the command has been stopped',
    '--label NAME': 'the name of this process for people who look at the locks (default host:pid)',
    '--note TEXT':
      'what the lease is for, for the same people (default: the name of the program, without its arguments, which may be secret)',
    '--tty':
      'give the command the terminal although its input is not one (for a command that asks for a password on /dev/tty)',
    '--no-tty': 'never give the command the terminal',
  }),
]

export const COMMANDS: readonly CommandSpec[] = [
  {
    name: 'run',
    synopsis: 'ringfence run [options] RESOURCE... -- COMMAND [ARG...]',
    summary: 'hold a lease while a command runs',
    text: [
      'Waits for the lease, runs the command without a shell in a process group of its own, renews the lease while it runs, and releases it after. Several resources are locked together, all or none; a name that is given twice counts once.',
      "The exit code is the command's own, or 128+n if signal n ended it. INT, TERM, HUP, QUIT, USR1, USR2 and WINCH are passed on to the command; while it still waits they end the wait.",
      'When the lease is lost, the command gets TERM, and KILL after the grace, early enough that nothing of it is alive when validity ends; also when ringfence itself is stopped or killed meanwhile. A lease that was taken away (by `ringfence release`, or because its key was deleted) is noticed at the next renewal only.',
      'The command finds in its environment: RINGFENCE_RESOURCE (several: a line each), RINGFENCE_TOKEN, RINGFENCE_OWNER, RINGFENCE_ENGINE, RINGFENCE_DEADLINE_FILE, and with --permits RINGFENCE_PERMIT. `ringfence held` in it exits 0 while the validity of the lease lasts by our own clock.',
      'Without --wait it waits forever for a holder, but not for an engine that cannot be reached at the start. While it waits, a terminal shows for how long, who holds it and since when, and the place in line where the engine knows it; elsewhere a line says so every 30 seconds, unless --quiet.',
      'With --once and --store it records when the job began, where, how long it took and how it ended; `ringfence runs` shows that. A store that cannot be reached neither stops the job nor changes the exit code: it is said on stderr.',
    ],
    options: [
      ...options({
        '--wait TIME': 'wait at most this long (default: forever)',
        '-n, --no-wait': 'do not wait: exit 193 when someone else holds it',
        '--once': 'for cron: exit 198 without running when it runs, or has just run, elsewhere',
        '--at-least TIME': 'with --once: nobody runs it again for this long after it began, however soon it is done',
        '--skip-ok': 'with --once: exit 0 instead of 198 when it was skipped',
        '--shared':
          'hold it together with others who say the same: many readers, or one writer; only on engines that have shared leases',
        '--permits N':
          'let N run at a time: hold one of the N permits of RESOURCE, whose number is in RINGFENCE_PERMIT; the same N for everyone',
        '-E, --conflict-exit-code N': 'exit with N, instead of 193 or 194, when the lease was not granted',
      }),
      ...STORE,
      ...HOLD,
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [
      ['ringfence run backup -- pg_dump -f dump.sql app', 'one backup at a time on this machine'],
      ['ringfence run --no-wait report -- ./report.sh', 'exit 193 at once if it already runs'],
      ["ringfence run backup -c './dump && ./upload'", 'a line for the shell'],
      ['ringfence run --permits 4 gpu -- ./train.sh', 'four at a time'],
      ['ringfence run --once --at-least 50s tick -- ./tick.sh', 'from every machine’s cron, and one of them does it'],
      ['ringfence run --once --store postgres://db/app backup -- ./backup.sh', 'and keep a history of its runs'],
      [
        'RINGFENCE_URL=redis://a,b,c ringfence run deploy -- ./deploy.sh',
        'across machines, on a quorum of three Redis',
      ],
    ],
  },
  {
    name: 'elect',
    synopsis: 'ringfence elect [options] NAME -- COMMAND [ARG...]',
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
    synopsis: 'ringfence held',
    summary: 'inside a command of run or elect: is the lease still held?',
    text: [
      'Exits 0 while the validity of the lease lasts by our own clock, and 1 otherwise. It compares the deadline in RINGFENCE_DEADLINE_FILE with the clock and asks no server, so it works while ringfence itself is stopped or dead. A lease that was taken away (by `ringfence release`, because its key was deleted or evicted) is noticed at the next renewal only: until then it exits 0.',
    ],
    options: OUTPUT,
    examples: [['ringfence held && mv report.tmp report', 'look once more before the step that counts']],
  },
  {
    name: 'status',
    synopsis: 'ringfence status [options] [RESOURCE]',
    summary: 'who holds what',
    text: [
      'Shows the holder, the token, since when and for how long it is held, and how many processes wait, as far as the engine knows. With a RESOURCE, and with --json, it also shows who waits and since when. With a RESOURCE it exits 0 if it is held and 1 if it is free; with --permits, 0 if a permit is held and 1 if all are free.',
    ],
    options: [
      ...options({
        '-w, --watch': 'show it again whenever it changes, until interrupted',
        '--every TIME': 'with --watch: how often to look (default 1s)',
        '--permits N': 'RESOURCE is a pool of N permits: show who holds which of them',
      }),
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [
      ['ringfence status', 'all leases of the engine'],
      ['ringfence status backup --watch --json', 'one line of JSON for each change'],
    ],
  },
  {
    name: 'runs',
    synopsis: 'ringfence runs [options] NAME',
    summary: 'when a job ran, where, and how it ended',
    text: [
      'Shows the last runs of a job of `run --once`, or of `locks.once` with a guard as `runs`, the newest first: when it began, how long it took, how it ended (done, failed, lost), on which machine, with which token. A run that only began still runs, or its process was killed. A store keeps the last 1000 runs of each job.',
    ],
    options: [...options({ '--limit N': 'how many, at most 1000 (default 20)' }), ...STORE, ...CONFIG, ...OUTPUT],
    examples: [
      ['ringfence runs backup --store postgres://db/app', 'the last twenty backups'],
      ['RINGFENCE_STORE=redis://a ringfence runs tick --limit 1 --json', 'how the last one ended, for a machine'],
    ],
  },
  {
    name: 'release',
    synopsis: 'ringfence release --force [options] RESOURCE',
    summary: "end someone else's lease",
    text: [
      "Says who holds it and asks before it does. If the resource is free, it says so and exits with 1. The holder's command is stopped when its next renewal fails, which may take a third of its ttl: until then two may work on the resource. A store that checks tokens is safe; others are not.",
      'Where several share a resource, it lists them, and ends one with --holder or every one with --all.',
    ],
    options: [
      ...options({
        '-f, --force': 'required: the lease is not yours',
        '--holder NAME':
          'of several that share it, the one whose holder status shows like this, or whose label or owner this is',
        '--all': 'all of them, where several share it',
        '-y, --yes': 'do not ask',
      }),
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [['ringfence release --force backup', 'after a machine was lost with a long ttl']],
  },
  {
    name: 'doctor',
    synopsis: 'ringfence doctor [options]',
    summary: 'is the engine fit to hold locks?',
    text: [
      'Shows the findings with what they mean and what to do, those of several servers together. What is in order is only counted. Exits 0, or 1 if something is critical (with --strict: if there is a warning).',
      'The score is 0 if something is critical: no lease can be granted, or two may hold one. Otherwise locks work, and each warning takes 10 and each note 1 off 100, once and not for each server.',
    ],
    options: [
      ...options({
        '--ttl TIME': 'judge for leases of this ttl (default 30s)',
        '--strict': 'exit 1 for warnings too',
        '--watch':
          'go on until interrupted: report again, with the time, when a server goes away, comes back, was started again or sits out, or a finding changes',
      }),
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [['ringfence doctor --engine redis://a,b,c', 'before you rely on them']],
  },
  {
    name: 'dashboard',
    synopsis: 'ringfence dashboard [options]',
    summary: 'a web page with all leases, live',
    text: [
      'Serves a page with every lease of the engine, its holder, time left and history, the servers and what the doctor says about them, until it is interrupted. Without a token it listens on this machine only, and every user of the machine can look; on any other address it refuses to start without one.',
      'A client that sends the write token may also release and extend leases. Each such act, each refused one and each failed login is a line of JSON on stderr. Tokens have 16 or more characters; a browser is asked for one, other programs send it as Authorization: Bearer.',
      'With several --engine there is one page for all of them: each is shown by its own link, with how it is. NAME=URL says what it is called there; otherwise that is the scheme of its URL.',
      'Load balancers and Kubernetes ask for /healthz, which needs no token: it says that the process answers. /healthz/engines says 503 while an engine cannot be reached, and /metrics is for Prometheus; both need a token where there is one.',
      'With --store, the details of a resource show the last runs of the job of that name, as `ringfence runs` does; the name of a job that nobody holds now is typed into the search field.',
      'It speaks plain HTTP: if clients are on other machines, put a proxy with TLS in front of it.',
    ],
    options: [
      ...options({
        '-l, --listen ADDRESS': 'PORT or HOST:PORT (default 127.0.0.1:7464); port 0 is any free port',
        '--token-file FILE':
          'ask every client for the token in this file, or for the write token (RINGFENCE_DASHBOARD_TOKEN holds a token itself)',
        '--write-token-file FILE':
          'a client that sends the token in this file may also release and extend leases (RINGFENCE_DASHBOARD_WRITE_TOKEN holds a token itself)',
        '--origin URL':
          'how browsers reach it, where a proxy does not pass on the Host header: https://ops.example.org',
        '--path PATH': 'the path that a proxy passes on, such as /locks (default /)',
        '--history FILE':
          'keep the history in this file, of this user alone, so that it outlives a restart; at most 8 MB and 30 days (default: in memory)',
      }),
      ...STORE,
      ...ENGINES,
      ...OUTPUT,
    ],
    examples: [
      ['ringfence dashboard', 'look at the locks of this machine at http://127.0.0.1:7464/'],
      [
        'ringfence dashboard --engine redis://a,b,c --listen 0.0.0.0:7464 --token-file readers --write-token-file admins',
        'for a team, behind a proxy with TLS',
      ],
      [
        'ringfence dashboard --engine orders=redis://a,b,c --engine reports=postgres://db/app',
        'two engines in one page',
      ],
    ],
  },
  {
    name: 'lab',
    synopsis: 'ringfence lab [options]',
    summary: 'a web page in which you break the lock yourself',
    text: [
      'Serves a page, on this machine only, until it is interrupted. In it the library runs on simulated servers, and you pause processes, cut lines, restart nodes and switch remedies off. It needs no engine, touches no lock, and asks no other host for anything.',
    ],
    options: [
      ...options({
        '-l, --listen ADDRESS': 'PORT or HOST:PORT (default 127.0.0.1:7465); port 0 is any free port',
      }),
      ...OUTPUT,
    ],
    examples: [['ringfence lab', 'then open http://127.0.0.1:7465/']],
  },
  {
    name: 'init',
    synopsis: 'ringfence init [options]',
    summary: 'create what the engine needs on its servers',
    text: [
      'Creates tables, or stamps the nodes of a new quorum. Engines do it on first use as well; this does it ahead of time, with an account that has the permission. On a quorum it also starts the time for which nodes that may have forgotten leases sit out.',
    ],
    options: [
      ...options({
        '--store URL':
          'create the tables of this store of runs, and nothing of the engine (RINGFENCE_STORE does not count here)',
      }),
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [
      ['ringfence init --engine postgres://db/app', 'create the table'],
      ['ringfence init --store postgres://db/app', 'create the tables of `run --store`'],
    ],
  },
  {
    name: 'advise',
    synopsis: 'ringfence advise [options]',
    summary: 'which engine suits you, or whether you need a lock at all',
    text: [
      'Asks a few questions on the terminal, or takes the answers as options, and ends with a recommendation, its reason and a snippet.',
    ],
    options: [
      choice('--protects WHAT', 'what the lock protects', ['one-database', 'several-stores', 'a-job']),
      choice('--failure COST', 'what it costs if two processes do it at once', ['waste', 'damage']),
      choice('--checks ANSWER', 'whether the store can check a token on each write', ['yes', 'no']),
      choice('--machines N', 'where it runs', ['one', 'many']),
      choice('--have SERVER', 'what you already run', [
        'nothing',
        'redis',
        'postgres',
        'mariadb',
        'mongodb',
        'etcd',
        'consul',
        'zookeeper',
      ]),
      choice('--available ANSWER', 'whether it must go on when one server is gone', ['yes', 'no']),
      ...OUTPUT,
    ],
    examples: [
      ['ringfence advise', 'asks'],
      ['ringfence advise --protects a-job --failure waste --machines many --have redis --available no', 'does not ask'],
    ],
  },
  {
    name: 'migrate',
    synopsis: 'ringfence migrate [options] redlock PATH...',
    summary: 'rewrite a program that uses redlock',
    text: [
      "Rewrites the imports of redlock, so that they lead to ringfence/redlock, which has the same API. With --api it also rewrites the calls to ringfence's own API, in those files in which it understands every use of redlock; in the others it rewrites the imports alone, and says why. What is left to do is listed with its file and line.",
      'Nothing is changed without --write. Run again, it finds nothing to rewrite. It reads programs with @babel/parser, which is not a part of ringfence: npm install --no-save @babel/parser.',
    ],
    options: [
      ...options({
        '--api': "rewrite the calls, too, to ringfence's own API",
        '--write': 'change the files',
      }),
      ...OUTPUT,
    ],
    examples: [
      ['ringfence migrate redlock src', 'what would be changed, and what is left'],
      ['ringfence migrate --api --write redlock src', 'change the files, calls included'],
    ],
  },
  {
    name: 'bench',
    synopsis: 'ringfence bench [options]',
    summary: 'how fast is your engine from here, and which ttl suits it',
    text: [
      'Acquires and releases a resource of its own, shows p50 and p99 of each, measures how the clock that ends leases runs against ours and how long this process stood still, and recommends a ttl from all of these. It cannot see the pauses of your own program: take the longest from the metric ringfence.stall.duration, and give it with --pause.',
    ],
    options: [
      ...options({
        '--count N': 'how many leases to take (default 200)',
        '--for TIME': 'how long to compare the clocks (default 3s)',
        '--pause TIME': 'the longest pause of your program that is known, such as of its garbage collector',
      }),
      ...ENGINE,
      ...OUTPUT,
    ],
    examples: [['ringfence bench --engine redis://a,b,c', 'p50 and p99 from this machine']],
  },
  {
    name: 'completion',
    synopsis: 'ringfence completion bash|zsh|fish',
    summary: 'print a completion script for your shell',
    text: [],
    options: options({ '-h, --help': 'show this help' }),
    examples: [
      ['eval "$(ringfence completion bash)"', 'in ~/.bashrc'],
      ['ringfence completion fish > ~/.config/fish/completions/ringfence.fish', ''],
    ],
  },
]

export function commandNamed(name: string): CommandSpec | undefined {
  return COMMANDS.find((command) => command.name === name)
}
