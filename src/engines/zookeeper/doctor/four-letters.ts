import { connect } from 'node:net'
import type { Clock } from '../../../clock.ts'

/** The answer to one of ZooKeeper's four-letter commands, such as `srvr`. Rejects if there is none. */
export function fourLetters(server: string, word: string, withinMs: number, clock: Clock): Promise<string> {
  return new Promise((resolve, reject) => {
    const [host, port] = server.split(':')
    let answer = ''
    const socket = connect(Number(port), host, () => socket.write(word))
    const timer = clock.timer(() => socket.destroy(new Error(`no answer within ${withinMs} ms`)), withinMs, true)
    socket.setEncoding('utf8').on('data', (text) => (answer += String(text)))
    socket.once('error', reject)
    socket.once('close', () => {
      timer.cancel()
      resolve(answer)
    })
  })
}
