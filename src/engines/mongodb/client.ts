/** The methods of a `Db` of the official driver (`mongodb`, 6 or newer) that the engine calls. */
export interface MongoDb {
  readonly databaseName: string
  collection(name: string, options?: object): MongoCollection
  command(command: object, options?: object): Promise<object>
  admin(): { command(command: object, options?: object): Promise<object> }
}

/** What the engine uses of a collection of the driver. */
export interface MongoCollection {
  findOneAndUpdate(filter: object, update: object[], options: object): Promise<unknown>
  updateOne(filter: object, update: object[], options: object): Promise<{ readonly matchedCount: number }>
  updateMany(filter: object, update: object[], options: object): Promise<{ readonly matchedCount: number }>
  bulkWrite(operations: MongoUpdate[], options: object): Promise<{ readonly matchedCount: number }>
  find(filter: object, options: object): MongoCursor
  watch(pipeline: object[], options: object): MongoChangeStream
}

/** One of several updates in one request. */
export type MongoUpdate =
  | { readonly updateOne: { readonly filter: object; readonly update: object[]; readonly upsert?: boolean } }
  | { readonly updateMany: { readonly filter: object; readonly update: object[] } }

/** What the engine uses of a cursor of the driver. */
export interface MongoCursor {
  next(): Promise<unknown>
  close(): Promise<void>
}

/** What the engine uses of a change stream of the driver. */
export interface MongoChangeStream {
  readonly closed: boolean
  once(event: 'resumeTokenChanged', listener: () => void): unknown
  tryNext(): Promise<unknown>
  close(): Promise<void>
}
