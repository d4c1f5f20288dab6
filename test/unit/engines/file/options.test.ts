import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { file, type FileOptions } from '../../../../src/engines/file/index.ts'
import { createFolder, removeFolder } from '../../../../harness/temporary-folder.ts'

afterEach(() => {
  vi.unstubAllEnvs()
})

describe('the path', () => {
  test('is by default in the folder for the state of programs', () => {
    vi.stubEnv('XDG_STATE_HOME', '/var/state')
    expect(file().identity).toBe('file:/var/state/ringfence/locks.db')
    vi.stubEnv('HOME', '/home/someone')
    vi.stubEnv('XDG_STATE_HOME', 'relative')
    expect(file().identity).toBe('file:/home/someone/.local/state/ringfence/locks.db')
    vi.stubEnv('XDG_STATE_HOME', undefined)
    expect(file().identity).toBe('file:/home/someone/.local/state/ringfence/locks.db')
  })

  test('must be given where there is no home folder', () => {
    vi.stubEnv('XDG_STATE_HOME', undefined)
    vi.stubEnv('HOME', 'nowhere')
    expect(() => file()).toThrow(
      "path: expected one, since there is no folder for the file: HOME is 'nowhere'; give a path",
    )
    expect(file('/locks.db').identity).toBe('file:/locks.db')
  })

  test('is the same from whichever folder it is seen', () => {
    expect(file('locks.db').identity).toBe(`file:${resolve('locks.db')}`)
  })

  test.each([
    [42, TypeError, 'path: expected a string, got 42'],
    [null, TypeError, 'path: expected a string, got null'],
    ['', RangeError, 'path: expected the path of a file, got an empty string; leave it out for the one of this user'],
    [
      'file:///tmp/locks.db',
      RangeError,
      "path: expected a path, got the URL 'file:///tmp/locks.db'; use fileURLToPath of node:url",
    ],
    [
      '/tmp/a\0b',
      RangeError,
      'path: expected a path without null characters, got one with them; no file can be called that',
    ],
  ])('%j is refused', (path, type, message) => {
    expect(() => file(path as string)).toThrow(new type(message))
  })
})

describe('an option', () => {
  test.each([
    [{ timeout: 1 }, TypeError, "options: expected requestTimeout, deadHolder, clock, random, got 'timeout'"],
    [{ requestTimeout: 0 }, RangeError, 'requestTimeout:'],
    [{ requestTimeout: 'soon' }, TypeError, 'requestTimeout:'],
    [{ requestTimeout: '2m' }, RangeError, 'requestTimeout:'],
    [{ deadHolder: 'never' }, TypeError, "deadHolder: expected 'at once' or 'after ttl', got 'never'"],
    [{ clock: {} }, TypeError, 'clock: expected an object with monotonicMs, wallMs, timer, machineMs'],
    [null, TypeError, 'options: expected an object, got null'],
  ])('%j is refused', (options, type, message) => {
    const make = (): unknown => file('/locks.db', options as FileOptions)
    expect(make).toThrow(type)
    expect(make).toThrow(message)
  })
})

test('nothing is opened or made before the first use', () => {
  const folder = createFolder('file')
  file(join(folder, 'locks.db'))
  expect(existsSync(join(folder, 'locks.db'))).toBe(false)
  removeFolder(folder)
})
