// The file in object storage: read, changed and written back by the holder of the lease. The storage itself knows
// nothing of tokens, but it can write on the condition that nothing has changed (ETag and If-Match), and that is enough.
import { createServer } from 'node:http'
import { buffer } from 'node:stream/consumers'
import { createLocks } from 'ringfence'
import { casGuard, objectStore } from 'ringfence/guard'
import { memory } from 'ringfence/memory'

// As much of an object storage as it takes; yours is an S3, with a `fetch` that signs.
const objects = new Map()
let version = 0
async function answer(request, response) {
  const body = await buffer(request)
  const object = objects.get(request.url)
  const { 'if-match': match, 'if-none-match': none, 'x-amz-meta-fence': fence = '' } = request.headers
  if (request.method === 'GET') {
    if (object === undefined) return response.writeHead(404).end()
    return response.writeHead(200, { etag: object.etag, 'x-amz-meta-fence': object.fence }).end(object.body)
  }
  if ((match !== undefined && match !== object?.etag) || (none === '*' && object !== undefined)) {
    return response.writeHead(412).end()
  }
  objects.set(request.url, { body, fence, etag: `"${++version}"` })
  response.end()
}
const storage = createServer((request, response) => void answer(request, response))
await new Promise((resolve) => storage.listen(0, '127.0.0.1', resolve))
const url = (key) => `http://127.0.0.1:${storage.address().port}/${key}`

const guard = casGuard(objectStore({ url }))
const locks = createLocks(memory(), { wait: '5s' })
const add = (line) => (file) => Buffer.concat([file ?? Buffer.of(), Buffer.from(`${line}\n`)])

const first = await locks.acquire('report.txt', { ttl: '100ms', renew: false })
await guard.write(first, 'report.txt', add('written by the first'))
// … paused for longer than its lease. Meanwhile:
const second = await locks.acquire('report.txt')
await guard.enter(second) // before the first read
await guard
  .write(first, 'report.txt', add('late'))
  .catch((error) => console.log(`the first was refused: ${error.message}`))
await guard.write(second, 'report.txt', add('written by the second'))
process.stdout.write(await (await fetch(url('report.txt'))).text())

await locks.close()
storage.close()
