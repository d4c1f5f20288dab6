import { fork } from 'node:child_process'

/** @type {Set<import('node:child_process').ChildProcess>} */
const running = new Set()
process.on('exit', stopChildren)

export function stopChildren() {
  for (const child of running) child.kill('SIGKILL')
  running.clear()
}

/** Another process that is told what to do: worker.mjs, or another file that answers in the same way. */
export class Child {
  #child

  constructor(file = 'worker.mjs') {
    this.#child = fork(new URL(file, import.meta.url), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
    running.add(this.#child)
    this.#child.once('exit', () => running.delete(this.#child))
  }

  tell(message) {
    if (this.#child.connected) this.#child.send(message)
  }

  ask(task, plan, boundMs) {
    return new Promise((resolve, reject) => {
      const settle = (how) => {
        clearTimeout(timer)
        this.#child.off('message', heard)
        this.#child.off('exit', died)
        how()
      }
      const heard = ({ answer, error }) =>
        settle(() => (error === undefined ? resolve(answer) : reject(new Error(error))))
      const died = (code, signal) => settle(() => reject(new Error(`a worker died: ${signal ?? code}`)))
      const late = () => reject(new Error(`${task} of ${plan.library.name}: no answer in ${boundMs} ms`))
      const timer = setTimeout(() => settle(late), boundMs)
      this.#child.on('message', heard)
      this.#child.on('exit', died)
      this.tell({ task, plan })
    })
  }

  kill() {
    this.#child.kill('SIGKILL')
  }
}

/** One task in a process of its own, which is new and ends with it. */
export async function askOnce(task, plan, boundMs, file) {
  const child = new Child(file)
  try {
    return await child.ask(task, plan, boundMs)
  } finally {
    child.kill()
  }
}

/** The other side: answers what it is told. @param {Record<string, (plan: any) => unknown>} tasks */
export function serve(tasks) {
  process.on('message', (message) => void answer(tasks, message))
  // The parent is gone: so are we.
  process.on('disconnect', () => process.exit())
}

async function answer(tasks, { task, plan }) {
  try {
    const answer = await tasks[task](plan)
    // A task without an answer only changes what another one does.
    if (answer !== undefined) process.send?.({ answer })
  } catch (error) {
    process.send?.({ error: String(error?.stack ?? error) })
  }
}
