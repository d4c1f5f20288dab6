/** What every command understands through its environment. */
export const ENVIRONMENT: readonly (readonly [name: string, meaning: string])[] = [
  ['RINGFENCE_URL', 'the engine, as --engine'],
  ['RINGFENCE_URL_FILE', 'a file with that URL, as --engine-file'],
  ['RINGFENCE_CONFIG', 'a config file, as --config'],
  [
    'RINGFENCE_REQUIRE_ENGINE',
    'if 1: exit with 197 where no option, variable or config file names an engine, instead of using a file of this machine',
  ],
  ['RINGFENCE_STORE', 'the store of runs, as --store'],
  ['RINGFENCE_DASHBOARD_TOKEN', 'the token of dashboard, as in --token-file'],
  ['RINGFENCE_DASHBOARD_WRITE_TOKEN', 'its write token, as in --write-token-file'],
  ['NO_COLOR', 'no colours, if set and not empty'],
]

/** What the command of run and elect finds in its environment. */
export const CHILD_ENVIRONMENT: readonly (readonly [name: string, meaning: string])[] = [
  ['RINGFENCE_RESOURCE', 'the name; of several, a line each'],
  ['RINGFENCE_TOKEN', 'the fencing token: hand it to the store with every write'],
  ['RINGFENCE_OWNER', 'the unique id of this lease'],
  ['RINGFENCE_PERMIT', 'with --permits: the number of the permit, from 0 on'],
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
  ['redis+sentinel://a,b,c/NAME', 'the master that sentinels know by NAME; rediss+sentinel:// with TLS'],
  ['redis+cluster://a,b,c', 'a Redis Cluster; rediss+cluster:// with TLS'],
  ['postgres://user@host/database', 'PostgreSQL'],
  ['mariadb://user@host/database', 'MariaDB; mysql:// for MySQL, run as 9'],
  ['mongodb://host/database', 'MongoDB (also mongodb+srv://)'],
  ['etcd://host:2379', 'etcd; etcds:// with TLS; several hosts with commas'],
  ['consul://host:8500', 'Consul; consuls:// with TLS'],
  ['zookeeper://host:2181', 'ZooKeeper; several hosts with commas'],
]
