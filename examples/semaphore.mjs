// At most two at a time, in all processes together. Each holds a permit of its own, with a number and a token.
import { createLocks } from 'ringfence'
import { memory } from 'ringfence/memory'

const locks = createLocks(memory())
const gpus = locks.semaphore('gpu', 2)

async function train(model) {
  await gpus.using({ wait: '1h' }, async (lease) => {
    console.log(`${model} runs on GPU ${lease.permit}, token ${lease.token}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  })
}
await Promise.all(['first', 'second', 'third', 'fourth'].map(train))

const [one, two] = [await gpus.tryAcquire(), await gpus.tryAcquire()]
console.log(
  `held: ${[one, two]
    .sort((a, b) => a.permit - b.permit)
    .map(({ resources }) => resources[0])
    .join(', ')}; one more: ${(await gpus.tryAcquire())?.permit ?? 'none'}`,
)
await locks.close()
