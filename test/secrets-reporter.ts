import { inspect } from 'node:util'
import type { Reporter, TestCase } from 'vitest/node'

/** All passwords that tests plant begin with it, so that nothing else looks like one. */
const PLANTED = 'Pl4nted'
/** In base64 the beginning depends on what stands before it: after a multiple of three bytes, after one more, and after two. */
const FORMS = [PLANTED, ...['', ':', '::'].map(encoded)]
const LONGEST = Math.max(...FORMS.map((form) => form.length))
/** Errors hold what JSON has no words for: tokens are bigints, and some errors have themselves as a cause. */
const WHOLE = { depth: null, maxArrayLength: null, maxStringLength: null }

/** The characters that `PLANTED` alone decides, after these bytes. */
function encoded(before: string): string {
  const base64 = Buffer.from(before + PLANTED).toString('base64')
  return base64.slice(Math.ceil((before.length * 8) / 6), Math.floor(((before.length + PLANTED.length) * 8) / 6))
}

/** Fails the run if a planted password stands in what it printed, or in an error of a test, also of one that passed when it was run once more. */
export default class SecretsReporter implements Reporter {
  readonly #found: string[] = []

  onInit(): void {
    this.#listenTo(process.stdout, 'the standard output')
    this.#listenTo(process.stderr, 'the standard error output')
  }

  onTestCaseResult(test: TestCase): void {
    this.#look(inspect(test.result().errors, WHOLE), `an error of the test '${test.fullName}'`)
  }

  onTestRunEnd(): void {
    const found = this.#found.splice(0)
    if (found.length === 0) return
    process.exitCode = 1
    console.error(`a planted password was told in ${found.join(', and in ')}`)
  }

  #listenTo(stream: NodeJS.WriteStream, name: string): void {
    const write = stream.write.bind(stream) as (...args: unknown[]) => boolean
    // A password may come in two pieces.
    let end = ''
    stream.write = (chunk: string | Uint8Array, ...rest: unknown[]) => {
      const text = end + (typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('latin1'))
      this.#look(text, name)
      end = text.slice(1 - LONGEST)
      return write(chunk, ...rest)
    }
  }

  #look(text: string, where: string): void {
    const form = FORMS.find((one) => text.includes(one))
    if (form === undefined) return
    const at = text.indexOf(form)
    const around = `${text.slice(Math.max(0, at - 60), at)}…`.replaceAll(/\s+/g, ' ')
    const what = `${where}, after '${around}'`
    // The same place is seen again in the next piece.
    if (!this.#found.includes(what)) this.#found.push(what)
  }
}
