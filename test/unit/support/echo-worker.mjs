// Answers what it is told, for the tests of the worker support.
process.on('message', (message) => {
  if (message.type === 'die') {
    process.stderr.write(`${message.value}\n`, () => process.exit(7))
    return
  }
  process.send(message)
})
process.send({ type: 'ready', value: [process.argv[2], process.env.GREETING] })
