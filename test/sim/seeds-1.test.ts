import { thousandSeeds } from './seeds.ts'

thousandSeeds(1)
