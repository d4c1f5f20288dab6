import { connect } from 'node:net'

/**
 * Just enough of MongoDB's protocol to set a server up without its driver: one command a connection, with the BSON
 * types that commands and their answers use.
 */
type MongoValue = string | number | bigint | boolean | null | Date | Buffer | MongoValue[] | MongoDocument | undefined
export interface MongoDocument {
  [key: string]: MongoValue
}

const messageOpcode = 2013
const headerBytes = 16
// After the header come four bytes of flags and one that says "a single document follows".
const documentOffset = headerBytes + 5

/** Runs a command and returns the answer; rejects when the server says that it failed. */
export async function mongoCommand(port: number, command: MongoDocument): Promise<MongoDocument> {
  const reply = await exchange(port, encodeMessage(command))
  const document = decodeDocument(reply.subarray(documentOffset))
  const { ok, codeName, errmsg } = document
  if (ok !== 1) throw new Error(`mongodb: ${JSON.stringify({ codeName, errmsg })}`)
  return document
}

function encodeMessage(command: MongoDocument): Buffer {
  const body = encodeDocument(command)
  const head = Buffer.alloc(documentOffset)
  head.writeInt32LE(documentOffset + body.length, 0)
  head.writeInt32LE(messageOpcode, 12)
  return Buffer.concat([head, body])
}

function exchange(port: number, request: Buffer): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let received = Buffer.alloc(0)
    const socket = connect(port, '127.0.0.1', () => socket.write(request))
    socket.setTimeout(10_000, () => socket.destroy(new Error('mongodb does not answer')))
    socket.on('data', (piece) => {
      received = Buffer.concat([received, piece])
      if (received.length < 4 || received.length < received.readInt32LE(0)) return
      socket.destroy()
      resolve(received)
    })
    socket.once('error', reject)
    socket.once('close', () => reject(new Error('mongodb closed the connection')))
  })
}

function encodeDocument(document: MongoDocument): Buffer {
  const elements = Object.entries(document).map(([name, value]) => {
    const [type, bytes] = encodeValue(value)
    return Buffer.concat([Buffer.from([type]), Buffer.from(`${name}\0`), bytes])
  })
  const body = Buffer.concat(elements)
  const size = Buffer.alloc(4)
  size.writeInt32LE(body.length + 5)
  return Buffer.concat([size, body, Buffer.from([0])])
}

function encodeValue(value: MongoValue): [type: number, bytes: Buffer] {
  if (typeof value === 'string') {
    const text = Buffer.from(`${value}\0`)
    const size = Buffer.alloc(4)
    size.writeInt32LE(text.length)
    return [0x02, Buffer.concat([size, text])]
  }
  if (typeof value === 'number' && Number.isInteger(value)) {
    const bytes = Buffer.alloc(4)
    bytes.writeInt32LE(value)
    return [0x10, bytes]
  }
  if (typeof value === 'boolean') return [0x08, Buffer.from([value ? 1 : 0])]
  if (Array.isArray(value)) return [0x04, encodeDocument(Object.fromEntries(value.entries()))]
  if (isDocument(value)) return [0x03, encodeDocument(value)]
  throw new TypeError(`no encoding for ${String(value)}`)
}

function isDocument(value: MongoValue): value is MongoDocument {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
}

function decodeDocument(bytes: Buffer): MongoDocument {
  const document: MongoDocument = {}
  let at = 4
  for (;;) {
    const type = bytes.readUInt8(at)
    if (type === 0) return document
    const nameEnd = bytes.indexOf(0, at + 1)
    const name = bytes.toString('utf8', at + 1, nameEnd)
    const [value, length] = decodeValue(type, bytes.subarray(nameEnd + 1))
    document[name] = value
    at = nameEnd + 1 + length
  }
}

function decodeValue(type: number, bytes: Buffer): [value: MongoValue, length: number] {
  switch (type) {
    case 0x01:
      return [bytes.readDoubleLE(), 8]
    case 0x02:
      return [bytes.toString('utf8', 4, 3 + bytes.readInt32LE()), 4 + bytes.readInt32LE()]
    case 0x03:
      return [decodeDocument(bytes), bytes.readInt32LE()]
    case 0x04:
      return [Object.values(decodeDocument(bytes)), bytes.readInt32LE()]
    case 0x05:
      return [bytes.subarray(5, 5 + bytes.readInt32LE()), 5 + bytes.readInt32LE()]
    case 0x07:
      return [bytes.subarray(0, 12), 12]
    case 0x08:
      return [bytes.readUInt8() === 1, 1]
    case 0x09:
      return [new Date(Number(bytes.readBigInt64LE())), 8]
    case 0x0a:
      return [null, 0]
    case 0x10:
      return [bytes.readInt32LE(), 4]
    case 0x11:
    case 0x12:
      return [bytes.readBigInt64LE(), 8]
    default:
      throw new TypeError(`no decoding for BSON type ${type}`)
  }
}
