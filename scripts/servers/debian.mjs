import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { progress, run } from './run.mjs'

const keyring = '/usr/share/keyrings/debian-archive-keyring.gpg'

// Suites beside the machine's own. bookworm: PostgreSQL 15. Its backports: Valkey. bullseye: Consul and OpenSSL 1.1.
const extraSuites = ['bookworm', 'bookworm-backports', 'bullseye']
const extraSecuritySuites = ['bookworm-security', 'bullseye-security']
// Their C library is newer than that of Debian 12, so their programs bring it along.
const newerSuites = ['trixie', 'forky', 'sid']

/**
 * An apt of our own: its sources, lists and downloads lie in one folder, so the machine's are neither used nor changed.
 * It still takes the machine's proxies, credentials and keys, and knows what is installed. With `only`, it sees that
 * suite alone, for a server's version that others have newer.
 */
export async function openApt(folder, only) {
  const lists = path.join(folder, 'state', 'lists')
  mkdirSync(path.join(lists, 'partial'), { recursive: true })
  mkdirSync(path.join(folder, 'cache', 'archives', 'partial'), { recursive: true })
  const suites = await chooseSuites(lists, only)
  const configuration = writeConfiguration(folder, suites)
  progress(`debian: reading the package lists of ${suites.map(({ suite }) => suite).join(', ')}`)
  let complaint = ''
  try {
    await run('apt-get', ['-c', configuration, '-q', 'update'])
  } catch (error) {
    // One suite that the mirror lacks must not cost the servers of the others.
    complaint = ` (${error.message})`
    progress(`debian: some lists could not be fetched: ${error.message}`)
  }
  const isNewer = newerSuites.includes(only)
  // A library of the machine is too old for a program of a newer suite.
  const installed = isNewer ? new Set() : await installedPackages()

  return {
    /** Whether programs need the suite's own C library. */
    isNewer,
    isInstalled: (name) => installed.has(name),

    /** Extracts packages into a folder, without running any of their scripts. */
    async extract(names, target, label) {
      const downloads = path.join(folder, 'downloads', label)
      mkdirSync(downloads, { recursive: true })
      progress(`${label}: downloading ${names.join(' ')}`)
      try {
        await run('apt-get', ['-c', configuration, '-q', 'download', ...names], { cwd: downloads })
      } catch (error) {
        throw new Error(`${error.message}${complaint}`, { cause: error })
      }
      const files = names.map((name) => readdirSync(downloads).find((file) => file.startsWith(`${name}_`)))
      for (const file of files) await run('dpkg', ['-x', path.join(downloads, file), target])
    },

    /** The packages that these depend upon directly; of alternatives the first. */
    async dependencies(names) {
      const options = ['--no-recommends', '--no-suggests', '--no-conflicts', '--no-breaks', '--no-replaces']
      const { stdout } = await run('apt-cache', ['-c', configuration, 'depends', ...options, '--no-enhances', ...names])
      const found = new Set()
      let alternatives = false
      for (const line of stdout.split('\n')) {
        const match = /^ ([ |])(?:Pre)?Depends: (\S+)/.exec(line)
        if (!match) continue
        if (!alternatives && !match[2].startsWith('<')) found.add(match[2].replace(/:\w+$/, ''))
        alternatives = match[1] === '|'
      }
      return [...found]
    },
  }
}

/** The mirror is the machine's own: asking apt for its addresses spares us its two source formats. */
async function chooseSuites(emptyLists, only) {
  const release = readFileSync('/etc/os-release', 'utf8')
  // The mirror of a relative (Ubuntu, Raspbian) has neither the suites nor the keys.
  if (!/^ID=debian$/m.test(release))
    throw new Error('this machine is not a Debian: use a Debian 12 or newer, or its image')
  const codename = /^VERSION_CODENAME=(\w+)$/m.exec(release)?.[1] ?? 'stable'
  const { stdout } = await run('apt-get', ['update', '--print-uris', '-o', `Dir::State::lists=${emptyLists}`])
  const own = new RegExp(`^(${codename}|stable|oldstable)(-updates|-security)?$`)
  const suites = new Map()
  const add = (uri, suite) => suites.set(`${uri} ${suite}`, { uri, suite })
  for (const [, uri, suite] of stdout.matchAll(/^'(\S+?)\/dists\/(\S+?)\/main\/binary-[^/]+\/Packages/gm)) {
    if (own.test(suite)) add(uri, suite)
  }
  const known = [...suites.values()]
  const archive = known.find(({ suite }) => !suite.includes('-'))
  const security = known.find(({ suite }) => suite.endsWith('-security'))
  if (!archive) throw new Error('no Debian mirror in the apt configuration of this machine')
  if (only !== undefined) {
    // Neither of the two that are always in the making has security updates of its own.
    const hasSecurity = security && !['forky', 'sid'].includes(only)
    const updates = hasSecurity ? [{ uri: security.uri, suite: `${only}-security` }] : []
    return [{ uri: archive.uri, suite: only }, ...updates]
  }
  for (const suite of extraSuites) add(archive.uri, suite)
  for (const suite of security ? extraSecuritySuites : []) add(security.uri, suite)
  return [...suites.values()]
}

function writeConfiguration(folder, suites) {
  const signed = existsSync(keyring) ? `[signed-by=${keyring}] ` : ''
  const sources = path.join(folder, 'sources.list')
  writeFileSync(sources, suites.map(({ uri, suite }) => `deb ${signed}${uri} ${suite} main\n`).join(''))
  const file = path.join(folder, 'apt.conf')
  // Given with -c, which apt reads last: APT_CONFIG would be overruled by /etc/apt/apt.conf.d. The hooks found there
  // (such as those of Docker's images) would work on the machine's own cache. Old suites have outdated release files.
  // The sandbox user could not enter a cache below root's home.
  writeFileSync(
    file,
    `Dir::Etc::sourcelist "${sources}";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "${path.join(folder, 'state')}";
Dir::Cache "${path.join(folder, 'cache')}";
Dir::Log "${folder}";
Acquire::Languages "none";
Acquire::PDiffs "false";
Acquire::Check-Valid-Until "false";
Acquire::Retries "3";
APT::Sandbox::User "";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`,
  )
  return file
}

async function installedPackages() {
  const { stdout } = await run('dpkg-query', ['-W', '-f', '${db:Status-Abbrev} ${Package}\n'])
  return new Set([...stdout.matchAll(/^ii\s+(\S+)$/gm)].map((match) => match[1]))
}
