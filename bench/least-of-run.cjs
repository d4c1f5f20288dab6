// What `ringfence run x -- true` cannot do without, and nothing else: a row in a file, the command behind a shell that waits
// for a word, and a shell that watches. `bench/startup.mjs` starts it in a folder of its own.
process.emitWarning = () => undefined
const sqlite = process.getBuiltinModule('node:sqlite')
const Database = sqlite === undefined ? require('libsql') : sqlite.DatabaseSync
const { spawn } = require('node:child_process')

const database = new Database('least.db')
database.exec('CREATE TABLE IF NOT EXISTS leases (resource TEXT PRIMARY KEY, owner TEXT)')
database.exec("BEGIN IMMEDIATE; REPLACE INTO leases VALUES ('x', 'owner'); COMMIT")
const command = spawn('/bin/sh', ['-c', 'read -r _ <&4 || exit 0; exec true 4<&-'], {
  detached: true,
  stdio: ['inherit', 'inherit', 'inherit', 'pipe', 'pipe'],
})
const watchdog = spawn('/bin/sh', ['-c', 'sleep 20 & while read -r _; do :; done'], {
  detached: true,
  stdio: ['pipe', 'ignore', 'ignore'],
})
watchdog.on('exit', () => process.exit(0))
command.on('exit', () => {
  database.exec("DELETE FROM leases WHERE resource = 'x'")
  database.close()
  process.kill(-Number(watchdog.pid), 'SIGKILL')
})
command.stdio[4].write('go\n')
