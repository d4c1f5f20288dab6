import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { Queue } from '../../src/queue.ts'

class Person {
  readonly name: string
  readonly resources: readonly string[]
  timesFirst = 0
  readonly wokenAfterMs: number[] = []

  constructor(name: string, ...resources: string[]) {
    this.name = name
    this.resources = resources
  }

  first(): void {
    this.timesFirst++
  }

  wake(delayMs: number): void {
    this.wokenAfterMs.push(delayMs)
  }
}

describe('a line', () => {
  test('serves first come, first served', () => {
    const queue = new Queue<Person>()
    const [one, two, three] = [new Person('1', 'a'), new Person('2', 'a'), new Person('3', 'a')]
    for (const person of [one, two, three]) queue.enter(person)
    expect([one, two, three].map(({ timesFirst }) => timesFirst)).toEqual([1, 0, 0])
    queue.leave(one)
    expect([one, two, three].map(({ timesFirst }) => timesFirst)).toEqual([1, 1, 0])
    queue.leave(two)
    expect([one, two, three].map(({ timesFirst }) => timesFirst)).toEqual([1, 1, 1])
    queue.leave(three)
    expect(queue.size).toBe(0)
  })

  test('is woken at its head, once for several resources', () => {
    const queue = new Queue<Person>()
    const [both, behind, other] = [new Person('1', 'a', 'b'), new Person('2', 'a'), new Person('3', 'x')]
    for (const person of [both, behind, other]) queue.enter(person)
    queue.wake(['a', 'b'], 5)
    expect([both, behind, other].map(({ wokenAfterMs }) => wokenAfterMs)).toEqual([[5], [], []])
  })

  test('closes up when someone in the middle leaves', () => {
    const queue = new Queue<Person>()
    const [one, two, three] = [new Person('1', 'a'), new Person('2', 'a'), new Person('3', 'a')]
    for (const person of [one, two, three]) queue.enter(person)
    queue.leave(two)
    expect(three.timesFirst).toBe(0)
    queue.leave(one)
    expect(three.timesFirst).toBe(1)
    expect(two.timesFirst).toBe(0)
  })

  test('knows who comes right after its first and wants the very same', () => {
    const heirOf = (...people: Person[]): string | undefined => {
      const queue = new Queue<Person>()
      for (const person of people) queue.enter(person)
      return queue.heir(people[0]!)?.name
    }
    const [one, two, three] = [new Person('1', 'a', 'b'), new Person('2', 'a', 'b'), new Person('3', 'a', 'b')]
    expect(heirOf(one)).toBeUndefined()
    expect(heirOf(one, two, three)).toBe('2')
    expect(heirOf(one, new Person('less', 'a'))).toBeUndefined()
    expect(heirOf(one, new Person('more', 'a', 'b', 'c'))).toBeUndefined()
    expect(heirOf(one, new Person('between', 'b'), two)).toBeUndefined()
    expect(heirOf(new Person('1', 'a'), new Person('2', 'a', 'b'))).toBeUndefined()
  })

  test('does not mind somebody who leaves twice', () => {
    const queue = new Queue<Person>()
    const [one, two] = [new Person('1', 'a'), new Person('2', 'a')]
    queue.enter(one)
    queue.enter(two)
    queue.leave(one)
    queue.leave(one)
    expect(two.timesFirst).toBe(1)
    expect(queue.heads(['a'])).toEqual([two])
  })
})

describe('somebody in several lines', () => {
  test('is first only when first in each', () => {
    const queue = new Queue<Person>()
    const [a, b, both] = [new Person('a', 'a'), new Person('b', 'b'), new Person('both', 'a', 'b')]
    for (const person of [a, b, both]) queue.enter(person)
    queue.leave(a)
    expect(both.timesFirst).toBe(0)
    queue.leave(b)
    expect(both.timesFirst).toBe(1)
  })

  test('holds up those behind in every line, and lets them all go on when leaving', () => {
    const queue = new Queue<Person>()
    const [both, a, b] = [new Person('both', 'a', 'b'), new Person('a', 'a'), new Person('b', 'b')]
    for (const person of [both, a, b]) queue.enter(person)
    expect([a.timesFirst, b.timesFirst]).toEqual([0, 0])
    queue.leave(both)
    expect([a.timesFirst, b.timesFirst]).toEqual([1, 1])
  })

  test('appears once among the heads and among the waiters', () => {
    const queue = new Queue<Person>()
    const both = new Person('both', 'a', 'b')
    const other = new Person('c', 'c')
    queue.enter(both)
    queue.enter(other)
    expect(queue.heads(['a', 'b', 'x'])).toEqual([both])
    expect([...queue.waiters()]).toEqual([both, other])
  })
})

describe('any queue', () => {
  const arrival = fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd'), { minLength: 1, maxLength: 4 })
  const step = fc.oneof(
    fc.record({ kind: fc.constant('enter' as const), resources: arrival }),
    fc.record({ kind: fc.constant('leave' as const), which: fc.nat(100) }),
  )

  test('has somebody first while anybody waits, nobody behind a neighbour who came later, and everyone first once', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const queue = new Queue<Person>()
        const waiting: Person[] = []
        for (const [index, step] of steps.entries()) {
          if (step.kind === 'enter') {
            const person = new Person(String(index), ...[...step.resources].sort())
            waiting.push(person)
            queue.enter(person)
          } else if (waiting.length > 0) {
            const [gone] = waiting.splice(step.which % waiting.length, 1)
            queue.leave(gone!)
          }
          // The model: first is whoever shares no resource with anyone who came before.
          const first = waiting.filter(
            (person, at) =>
              !waiting.slice(0, at).some((earlier) => earlier.resources.some((r) => person.resources.includes(r))),
          )
          expect(waiting.filter(({ timesFirst }) => timesFirst > 0)).toEqual(first)
          expect(waiting.every(({ timesFirst }) => timesFirst <= 1)).toBe(true)
          expect(new Set(queue.waiters())).toEqual(new Set(waiting))
        }
        for (const person of waiting) queue.leave(person)
        expect(queue.size).toBe(0)
      }),
    )
  })
})
