import { byteLength } from '../../platform.ts'

/** A part of a command. Most parts go to several servers, or are sent again and again: each is encoded once. */
export interface Piece {
  readonly words: readonly string[]
  /** As it goes over the wire, once that was needed. */
  encoded?: string
}

export function piece(...words: string[]): Piece {
  return { words }
}

/** A command as a server reads it. */
export function encode(command: readonly Piece[]): string {
  let words = 0
  let text = ''
  for (const part of command) {
    words += part.words.length
    text += part.encoded ??= encoded(part.words)
  }
  return `*${words}\r\n${text}`
}

/** For drivers that encode commands themselves. */
export function wordsOf(command: readonly Piece[]): string[] {
  return command.flatMap(({ words }) => words)
}

function encoded(words: readonly string[]): string {
  let text = ''
  for (const word of words) text += `$${byteLength(word)}\r\n${word}\r\n`
  return text
}
