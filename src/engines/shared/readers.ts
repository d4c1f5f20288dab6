/**
 * The owner of a row or document that readers share: they themselves are in a field of it, so that one atomic step sees all of them,
 * and to an exclusive request it is held like any other. No lease has this owner, because the owner of a lease has a random part.
 */
export const READERS = '(readers)'
