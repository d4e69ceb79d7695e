"""Notebooks made from the texts: conversion, execution, cleaning, comparison, proofs."""
