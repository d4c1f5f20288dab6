import { svg } from '../svg.ts'
import { print, timeline } from '../timeline.ts'
import type { Played, Scenario } from './scenario.ts'

export interface Told {
  readonly text: string
  /** The same as a section of docs/testing/catalogue.md. */
  readonly markdown: string
  /** Damage without the remedy, none with it. */
  readonly asExpected: boolean
  readonly picture: string
}

/** Both plays of a scenario, and what came of them. */
export async function tell(scenario: Scenario): Promise<Told> {
  const without = await scenario.play(false)
  const remedied = await scenario.play(true)
  const asExpected = without.damage !== undefined && remedied.damage === undefined
  const text = [
    `${scenario.name}: ${scenario.title}`,
    `assumption broken: ${scenario.assumption}`,
    '',
    `without the remedy (${scenario.without}): ${without.damage ?? 'NO DAMAGE, which was not expected'}`,
    story(without),
    '',
    `with it (${scenario.remedy}): ${remedied.damage ?? 'no damage'}`,
    story(remedied),
    '',
  ].join('\n')
  const markdown = [
    `### ${scenario.name}`,
    '',
    `${capital(scenario.title)}. Assumption broken: ${scenario.assumption}.`,
    '',
    `Without the remedy (${scenario.without}): **${without.damage ?? 'no damage'}**.`,
    '',
    '```',
    story(without),
    '```',
    '',
    `With it (${scenario.remedy}): **${remedied.damage ?? 'no damage'}**.`,
    '',
    '```',
    story(remedied),
    '```',
    '',
  ].join('\n')
  return {
    text,
    markdown,
    asExpected,
    picture: svg(without.stage.history, `${scenario.name}: ${without.damage ?? ''}`),
  }
}

function story({ stage }: Played): string {
  return print(timeline(stage.history))
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1)
}
