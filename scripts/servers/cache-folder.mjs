import { statSync } from 'node:fs'
import { homedir } from 'node:os'
import path from 'node:path'

/** Where the extracted servers live. The set-up script writes there, the tests read the manifest there. */
export function serversFolder(env = process.env) {
  const chosen = env['RINGFENCE_SERVERS']
  if (chosen) return path.resolve(chosen)
  const xdg = env['XDG_CACHE_HOME']
  if (xdg) return path.join(xdg, 'ringfence', 'servers')
  // Tests that run as root start the servers as nobody (PostgreSQL refuses root), and nobody cannot execute a file
  // below a home folder with mode 700. The system's cache folder is readable by all and writable by root.
  if (process.getuid?.() === 0 && !othersMayEnter(homedir())) return '/var/cache/ringfence/servers'
  return path.join(homedir(), '.cache', 'ringfence', 'servers')
}

function othersMayEnter(folder) {
  try {
    return (statSync(folder).mode & 0o001) !== 0
  } catch {
    return false
  }
}
