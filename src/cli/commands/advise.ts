import { createInterface } from 'node:readline/promises'
import { adviceFor, QUESTIONS, type Answers } from './advice.ts'
import { EXIT, usage } from '../exit-codes.ts'
import type { Call } from '../session.ts'
import { wrap } from '../table.ts'

/** A few questions, a recommendation. */
export async function advise(call: Call): Promise<number> {
  const { line, output } = call
  const answers: Record<string, string> = {}
  for (const { name, choices } of QUESTIONS) {
    const given = line.options.text(name)
    if (given === undefined) continue
    if (!choices.some(([choice]) => choice === given)) {
      throw usage(`--${name}: expected ${choices.map(([choice]) => choice).join(', ')}, got '${given}'`)
    }
    answers[name] = given
  }
  await askTheRest(call, answers)
  const advice = adviceFor(answers as unknown as Answers)
  if (output.json) {
    output.object({ answers, ...advice })
    return EXIT.ok
  }
  output.line({ style: 'bold', text: advice.recommendation })
  const width = Math.min(process.stdout.columns ?? 100, 100)
  for (const reason of advice.reasons) for (const text of wrap(`- ${reason}`, width, '  ')) output.line(text)
  output.line('')
  for (const text of advice.snippet) output.line(`  ${text}`)
  return EXIT.ok
}

/** Those questions that still matter, one after the other: an answer may make others pointless. */
async function askTheRest({ output, signals }: Call, answers: Record<string, string>): Promise<void> {
  const open = (): (typeof QUESTIONS)[number] | undefined =>
    QUESTIONS.find(({ name, matters }) => answers[name] === undefined && matters(answers as Partial<Answers>))
  if (open() === undefined) return
  if (!process.stdin.isTTY || output.json) {
    const { name, choices } = open()!
    throw usage(
      `expected --${name} ${choices.map(([choice]) => choice).join('|')}`,
      'on a terminal, ringfence advise asks; elsewhere the answers are options',
    )
  }
  const prompt = createInterface({ input: process.stdin, output: process.stderr })
  try {
    for (let question = open(); question !== undefined; question = open()) {
      const { name, text, choices } = question
      process.stderr.write(`${text}\n`)
      for (const [index, [, meaning]] of choices.entries()) process.stderr.write(`  ${index + 1}) ${meaning}\n`)
      const reply = (await prompt.question('> ', { signal: signals.interrupted })).trim()
      const chosen = choices[Number(reply) - 1]?.[0] ?? choices.find(([choice]) => choice === reply)?.[0]
      if (chosen === undefined) process.stderr.write(`expected 1 to ${choices.length}\n`)
      else answers[name] = chosen
    }
  } finally {
    prompt.close()
  }
}
