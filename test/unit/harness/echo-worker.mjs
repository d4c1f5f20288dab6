// Answers what it is told, for the tests of the worker support.
import { spawn } from 'node:child_process'

process.on('message', (message) => {
  if (message.type === 'die') {
    process.stderr.write(`${message.value}\n`, () => process.exit(7))
    return
  }
  if (message.type === 'start') {
    process.send({ type: 'started', value: spawn(...message.value).pid })
    return
  }
  process.send(message)
})
process.send({ type: 'ready', value: [process.argv[2], process.env.GREETING] })
