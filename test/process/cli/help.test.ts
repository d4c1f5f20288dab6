import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { commandNamed, COMMANDS } from '../../../src/cli/command-list.ts'
import { RINGFENCE } from '../../../harness/command.ts'

test.each(COMMANDS.map(({ name }) => name))('ringfence %s --help shows its options and examples', (name) => {
  const { options, examples } = commandNamed(name)!
  const shown = execFileSync(process.execPath, [RINGFENCE, name, '--help'], { encoding: 'utf8' })
  for (const option of options) expect(shown).toContain(`--${option.name}`)
  for (const [example] of examples) expect(shown).toContain(example)
  expect(examples.length).toBeGreaterThan(0)
})

test.each(['bash', 'zsh', 'fish'])('the completion for %s knows every command and option', (shell) => {
  const script = execFileSync(process.execPath, [RINGFENCE, 'completion', shell], { encoding: 'utf8' })
  for (const { name, options } of COMMANDS) {
    expect(script).toContain(name)
    for (const option of options) expect(script).toContain(option.name)
  }
})

test.each([
  ['ringfence ', ['run', 'status', 'help']],
  ['ringfence st', ['status']],
  ['ringfence run --no', ['--no-wait', '--no-tty']],
  ['ringfence advise --failure ', ['waste', 'damage']],
  ['ringfence run x -- ech', ['echo']],
])('bash completes "%s"', (line, expected) => {
  const script = execFileSync(process.execPath, [RINGFENCE, 'completion', 'bash'], { encoding: 'utf8' })
  const words = line.split(' ')
  const ask = `${script}
    COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}
    _ringfence; printf '%s\\n' "\${COMPREPLY[@]}"`
  const offered = execFileSync('bash', ['-c', ask], { encoding: 'utf8' }).trim().split('\n')
  for (const word of expected) expect(offered).toContain(word)
})
