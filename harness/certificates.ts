import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { createFolder, giveToServer, removeFolder } from './temporary-folder.ts'

export interface Certificate {
  readonly cert: string
  readonly key: string
}

export interface Certificates extends Disposable {
  /** Where the files are: ca.pem, server.pem, server-key.pem, and both in server-both.pem; readable by servers. */
  readonly folder: string
  readonly ca: string
  readonly client: Certificate
  /** Of another authority, which the servers don't trust. */
  readonly stranger: Certificate
}

/** An authority of our own, a certificate for servers on 127.0.0.1, and one for a client, made by openssl. */
export function createCertificates(): Certificates {
  const folder = createFolder('certificates')
  makeAuthority(folder, 'ca')
  makeAuthority(folder, 'other-ca')
  makeSigned(folder, 'server', 'ca', 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth')
  makeSigned(folder, 'client', 'ca', 'extendedKeyUsage=clientAuth')
  makeSigned(folder, 'stranger', 'other-ca', 'extendedKeyUsage=clientAuth')
  const text = (name: string): string => readFileSync(path.join(folder, name), 'utf8')
  for (const name of ['server', 'client', 'stranger']) {
    const both = path.join(folder, `${name}-both.pem`)
    writeFileSync(both, text(`${name}.pem`) + text(`${name}-key.pem`), { mode: 0o600 })
    giveToServer(both)
  }
  return {
    folder,
    ca: text('ca.pem'),
    client: { cert: text('client.pem'), key: text('client-key.pem') },
    stranger: { cert: text('stranger.pem'), key: text('stranger-key.pem') },
    [Symbol.dispose]: () => removeFolder(folder),
  }
}

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']

function makeAuthority(folder: string, name: string): void {
  openssl(folder, ['req', '-x509', ...NEW_KEY, '-days', '2', '-subj', `/CN=${name}`, ...files(name)])
}

function makeSigned(folder: string, name: string, authority: string, extensions: string): void {
  writeFileSync(path.join(folder, `${name}.ext`), extensions)
  openssl(folder, ['req', ...NEW_KEY, '-subj', `/CN=${name}`, '-keyout', `${name}-key.pem`, '-out', `${name}.csr`])
  const by = ['-CA', `${authority}.pem`, '-CAkey', `${authority}-key.pem`, '-CAcreateserial']
  openssl(folder, [
    'x509',
    '-req',
    '-in',
    `${name}.csr`,
    ...by,
    '-days',
    '2',
    '-extfile',
    `${name}.ext`,
    '-out',
    `${name}.pem`,
  ])
  for (const file of [`${name}.pem`, `${name}-key.pem`]) giveToServer(path.join(folder, file))
}

function files(name: string): string[] {
  return ['-keyout', `${name}-key.pem`, '-out', `${name}.pem`]
}

function openssl(folder: string, args: readonly string[]): void {
  execFileSync('openssl', args, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] })
  giveToServer(path.join(folder, args.at(-1)!))
}
