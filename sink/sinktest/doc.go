// Package sinktest holds the contract suite that every sink must pass, and a
// scripted fake sink for the tests of those who use one.
package sinktest
